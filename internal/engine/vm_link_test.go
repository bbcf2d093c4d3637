// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The link goes down under traffic: every operation under way completes, on both sides; a
// connection that is made when the link is up again works.
func TestVMLinkDown(t *testing.T) {
	s := onNIC(t).few()
	for _, k := range s.kinds {
		t.Run(k.name, func(t *testing.T) { linkDown(t, s, k) })
	}
}

func linkDown(t *testing.T, s setting, k kind) {
	const size, writes = 1 << 20, 8
	// Half a second, four times: more than the link needs, less than the default.
	w := s.world(t, EndpointOptions{Connect: ibvfd.ConnectAttr{Timeout: 17, RetryCount: 3}})
	mine, theirs := k.make(t, w.a.nic, size), k.make(t, w.b.nic, size)
	r := testenv.Seeded(t)
	want := random(t, r, mine, size)
	rb := w.share(theirs.All(), allAccess)
	w.ok(w.a.Write(mine.All(), w.ab, rb.All(), "first"))
	w.done(w.a, operation.Write, "first")
	same(t, "before", theirs, want)

	heard := make(chan ibvfd.Event, 64)
	s.open(t, memory.NICOptions{Event: func(e ibvfd.Event) { heard <- e }})
	hears := func(want ibvfd.EventType) {
		t.Helper()
		for ctx := limited(t); ; {
			select {
			case e := <-heard:
				if e.Type == want && e.Port == 1 {
					return
				}
			case <-ctx.Done():
				t.Fatalf("the NIC did not report: %v", want)
			}
		}
	}
	w.ok(w.a.Recv(memory.Span{}, w.ab, "receive"))
	w.ok(w.b.Recv(memory.Span{}, w.ba, "receive"))
	for i := range writes {
		w.ok(w.a.Write(mine.All(), w.ab, rb.All(), i))
	}
	up := testenv.LinkDown(t)
	hears(ibvfd.EventPortErr)
	// Operations that completed before the link went down have succeeded; later ones cannot.
	left := writes + 1 // and the receive
	if err := w.a.Write(mine.All(), w.ab, rb.All(), writes); !errors.Is(err, ErrNotConnected) {
		w.ok(err)
		left++
	}
	var first error
	told := map[any]bool{}
	for range left {
		c := w.wait(w.a)
		if told[c.Context] || c.Err == nil && (first != nil || c.Context == writes || c.Op != operation.Write) {
			t.Errorf("%+v, told of %v; the first error: %v", c, told, first)
		}
		told[c.Context] = true
		if first == nil {
			first = c.Err
		} else if !errors.Is(c.Err, ErrNotConnected) || !strings.Contains(c.Err.Error(), "port 1 is down") {
			t.Errorf("%+v, want that the connection is gone, and why", c)
		}
	}
	t.Logf("the first error: %v", first)
	// A NIC detects the loss by its retries. rxe detects it as it sends: 6.1 reports an error
	// of its own, and later versions flush the work request.
	var wc *ibvfd.WCError
	if !errors.As(first, &wc) || !strings.Contains(first.Error(), "port 1 is down") ||
		!slices.Contains([]ibvfd.WCStatus{ibvfd.WCRetryExcErr, ibvfd.WCLocQPOpErr, ibvfd.WCWRFlushErr}, wc.Status) {
		t.Errorf("the first error is %v", first)
	}
	if c := w.wait(w.b); c.Context != "receive" || !errors.Is(c.Err, ErrNotConnected) {
		t.Errorf("the other side: %+v", c)
	}
	w.lost(w.a, w.ab)
	w.lost(w.b, w.ba)

	up()
	hears(ibvfd.EventPortActive)
	// The kernel fills the GID table with a delay.
	for end := time.Now().Add(testenv.Limit(20 * time.Second)); !hasIPv4(t, testNIC); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the NIC's address does not come back")
		}
	}
	w.connect()
	if err := w.a.Write(mine.All(), w.ab, rb.All(), nil); !errors.Is(err, operation.ErrStaleKey) {
		t.Errorf("a key of the connection before: %v", err)
	}
	want = random(t, r, mine, size)
	w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), allAccess).All(), "again"))
	w.done(w.a, operation.Write, "again")
	same(t, "with the link up again", theirs, want)
}
