// SPDX-License-Identifier: Apache-2.0

package memnic_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// A WRITE that is kept in the network lands, late, although its sender has given it up and has
// destroyed the queue pair. It does not land once the receiver's queue pair has failed or is
// destroyed.
func TestLateWrite(t *testing.T) {
	for what, x := range map[string]struct {
		fence func(a, b *side) error
		lands bool
	}{
		"no fence":           {func(a, b *side) error { return nil }, true},
		"the sender's end":   {func(a, b *side) error { return a.link.Close() }, true},
		"the receiver fails": {func(a, b *side) error { return b.link.Fail() }, false},
		"the receiver's end": {func(a, b *side) error { return b.link.Close() }, false},
	} {
		t.Run(what, func(t *testing.T) {
			n := fast()
			a, b := pairOf(t, n, ibvfd.ConnectAttr{})
			copy(a.mem, "late")
			n.Hold(a.dev, b.dev, true)
			wr := a.op(ibvfd.OpWrite, 0, 4, b, 0)
			a.post(rc.WriteQueue, wr)
			a.done(wr.ID, ibvfd.WCRetryExcErr)
			copy(a.mem, "----") // the NIC has read it before
			if err := x.fence(a, b); err != nil {
				t.Fatal(err)
			}
			n.Hold(a.dev, b.dev, false)
			if kept, landed, dropped := n.Late(); kept != 0 || landed+dropped != 1 || (landed == 1) != x.lands {
				t.Errorf("%d kept, %d landed, %d dropped", kept, landed, dropped)
			}
			if got := string(b.mem[:4]); (got == "late") != x.lands {
				t.Errorf("the peer has %q", got)
			}
		})
	}
}

// Operations that are let go on in time complete once, and are carried out once.
func TestHeldForAWhile(t *testing.T) {
	n := memnic.New(memnic.TimeScale(0.01))
	a, b := pairOf(t, n, ibvfd.ConnectAttr{Timeout: 20})
	binary.NativeEndian.PutUint64(b.mem, 40)
	b.recv(7, 100, 8)
	n.Hold(a.dev, b.dev, true)
	for i := range uint64(3) {
		wr := a.op(ibvfd.OpFetchAdd, 8*i, 8, b, 0)
		wr.ID, wr.CompareAdd = i, 1
		a.post(rc.WriteQueue, wr)
	}
	send := a.op(ibvfd.OpSend, 0, 8, b, 0)
	a.post(rc.WriteQueue, send)
	time.Sleep(5 * time.Millisecond)
	a.nothing()
	n.Hold(a.dev, b.dev, false)
	for i := range uint64(3) {
		a.done(i, ibvfd.WCSuccess)
		if old := binary.NativeEndian.Uint64(a.mem[8*i:]); old != 40+i {
			t.Errorf("operation %d has found %d", i, old)
		}
	}
	a.done(send.ID, ibvfd.WCSuccess)
	b.done(7, ibvfd.WCSuccess)
	if got := binary.NativeEndian.Uint64(b.mem); got != 43 {
		t.Errorf("the sum is %d", got)
	}
}

// Completions that were not polled are lost with their queue pair, as those of real NICs are.
func TestCompletionsEndWithTheLink(t *testing.T) {
	a, b := pairOf(t, fast(), ibvfd.ConnectAttr{})
	b.recv(7, 0, 8)
	send := a.op(ibvfd.OpSend, 0, 8, b, 0)
	a.post(rc.WriteQueue, send)
	a.done(send.ID, ibvfd.WCSuccess) // and so the receive has completed
	if err := b.link.Close(); err != nil {
		t.Fatal(err)
	}
	b.nothing()
}
