// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
)

// Read returns entries up to the first error, then EAVAIL until ReadErr has taken the error.
func TestReadErr(t *testing.T) {
	s := inMemory(t)
	w := s.world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a, 8), hostKind.make(t, w.b, 8)
	bad := forged(t, w.share(theirs.All(), allAccess), func(f *forgery) { f.key ^= 0xff })
	cq := w.a.CQ()
	if _, err := cq.ReadErr(); !errors.Is(err, EAGAIN) {
		t.Errorf("an empty CQ: %v", err)
	}
	for i := range 3 {
		w.ok(w.a.Write(IOV{}, w.ab, RMAIOV{}, i))
	}
	w.ok(w.a.Write(mine.All(), w.ab, bad.All(), "bad"))
	for ended := false; !ended; { // reading makes progress, with no room for entries, too
		if n, err := cq.Read(nil); n != 0 || !errors.Is(err, EAGAIN) && !errors.Is(err, EAVAIL) {
			t.Fatal(n, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		ended = errors.Is(w.a.Lost(ctx, w.ab), ENOTCONN)
		cancel()
	}
	list := make([]CQEntry, 16)
	if n, err := cq.Read(list[:2]); n != 2 || err != nil || list[0].OpContext != 0 || list[1].OpContext != 1 {
		t.Fatalf("%d, %v: %+v", n, err, list[:2])
	}
	if e, err := cq.ReadErr(); !errors.Is(err, EAGAIN) {
		t.Errorf("the next entry is no error: %v, %v", e, err)
	}
	if n, err := cq.Sread(limited(t), list); n != 1 || err != nil || list[0].OpContext != 2 {
		t.Fatalf("%d, %v: %+v", n, err, list[0])
	}
	for range 2 {
		if n, err := cq.Read(list); n != 0 || !errors.Is(err, EAVAIL) || Code(err) != EAVAIL || !strings.Contains(err.Error(), "EAVAIL") {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := cq.Sread(limited(t), list); n != 0 || !errors.Is(err, EAVAIL) {
			t.Errorf("%d, %v", n, err)
		}
	}
	w.failed(w.a, "bad", RMA|Write, EIO, ibvfd.WCRemAccessErr)
	if n, err := cq.Read(list); n != 0 || !errors.Is(err, EAGAIN) {
		t.Errorf("%d, %v", n, err)
	}
}

// The code of the NIC's vendor is that of the completion.
func TestVendorCode(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	mine, theirs := hostKind.make(t, w.a, 8), hostKind.make(t, w.b, 8)
	bad := forged(t, w.share(theirs.All(), allAccess), func(f *forgery) { f.key ^= 0xff })
	w.ok(w.a.Write(mine.All(), w.ab, bad.All(), "bad"))
	c := w.wait(w.a)
	if c.failed == nil || c.failed.VendorErr != memnic.VendorErr(ibvfd.WCRemAccessErr) {
		t.Errorf("%+v, %v", c, c.failed)
	}
	if s := c.failed.String(); !strings.Contains(s, "rma|write with context bad: EIO (5") || !strings.Contains(s, "error 10") {
		t.Error(s)
	}
}

// Sread returns EAGAIN when its context ends, and wakes up for entries, for an error that
// another goroutine has left, and for the end.
func TestSread(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	cq := w.a.CQ()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if n, err := cq.Sread(ctx, make([]CQEntry, 1)); n != 0 || !errors.Is(err, EAGAIN) || !errors.Is(err, context.Canceled) || Code(err) != EAGAIN {
		t.Errorf("%d, %v", n, err)
	}
	type result struct {
		entry CQEntry
		n     int
		err   error
	}
	const sleepers = 3
	results := make(chan result, sleepers)
	sread := func() {
		var list [1]CQEntry
		n, err := cq.Sread(limited(t), list[:])
		results <- result{list[0], n, err}
	}
	for range sleepers {
		go sread()
	}
	for i := range sleepers {
		w.ok(w.a.Write(IOV{}, w.ab, RMAIOV{}, i))
	}
	seen := map[any]bool{}
	for range sleepers {
		r := <-results
		if r.n != 1 || r.err != nil || seen[r.entry.OpContext] {
			t.Errorf("%+v", r)
		}
		seen[r.entry.OpContext] = true
	}
	for range sleepers {
		go sread()
	}
	w.ok(w.a.Recv(IOV{}, w.ab, "flushed"))
	w.ok(w.b.Close())
	for range sleepers { // all of them learn of the error, which stays
		if r := <-results; r.n != 0 || !errors.Is(r.err, EAVAIL) {
			t.Errorf("%+v", r)
		}
	}
	w.failed(w.a, "flushed", Msg|Recv, ECANCELED, ibvfd.WCWRFlushErr)
	go sread()
	w.ok(w.a.Close())
	if r := <-results; r.n != 0 || !errors.Is(r.err, os.ErrClosed) || !errors.Is(r.err, EBADF) {
		t.Errorf("%+v", r)
	}
	if _, err := cq.ReadErr(); !errors.Is(err, EBADF) {
		t.Error(err)
	}
}
