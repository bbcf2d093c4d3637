// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// A process that is killed with many registrations on buffers of their own, while
// others live, costs a look at each of its own.
func TestJoinManyBuffers(t *testing.T) {
	var c clock
	const n = 3000
	j := testJoiner(2 * n)
	var list []*abi.Record
	for id := uint64(1); id <= n; id++ {
		w := made(&c, id)
		list = append(list, w)
		j.handle(w)
	}
	j.take()
	for _, w := range list[:n/2] {
		j.handle(happens(&c, abi.EventMove, w))
		j.handle(happens(&c, abi.EventDereg, w))
		j.handle(happens(&c, abi.EventRelease, w))
	}
	for _, w := range list[n/2:] { // whose deregistrations were lost
		j.handle(happens(&c, abi.EventRelease, w))
	}
	if j.looked != n {
		t.Errorf("%d looks at records, for %d moves and %d releases that ended one", j.looked, n/2, n/2)
	}
	if len(j.live) != 0 || j.order.Len() != 0 || len(j.onBuf) != 0 {
		t.Errorf("%d records live, %d in order, on %d buffers", len(j.live), j.order.Len(), len(j.onBuf))
	}
	if got := len(j.take()); got != 2*n-n/2 {
		t.Errorf("%d events", got)
	}
}

// Records on one buffer are each told of its move and its end, in their order.
func TestJoinOneBuffer(t *testing.T) {
	var c clock
	j := testJoiner(3)
	on := func(w *abi.Record) { w.DMABuf, w.Inode = 0xb, 7 }
	first := made(&c, 1, on)
	for id := uint64(1); id <= 4; id++ { // the first is given up
		j.handle(made(&c, id, on))
	}
	j.handle(made(&c, 3, on)) // a number again: the newer one counts
	j.take()
	j.handle(happens(&c, abi.EventMove, first))
	j.handle(happens(&c, abi.EventRelease, first))
	var ids []uint64
	for _, e := range wantKinds(t, j, Moved, Moved, Moved, Released, Released, Released) {
		ids = append(ids, e.Record.ID)
	}
	if want := []uint64{2, 4, 3, 2, 4, 3}; !slices.Equal(ids, want) {
		t.Errorf("of records %v, want %v", ids, want)
	}
	if len(j.onBuf) != 0 {
		t.Errorf("%d buffers are left", len(j.onBuf))
	}
}

// Bounded state, whatever comes.
func TestJoinBounds(t *testing.T) {
	var c clock
	j := testJoiner(50)
	for id := uint64(1); id <= 100_000; id++ {
		w := made(&c, id)
		if id%3 != 0 { // a third of the records is lost
			j.handle(w)
		}
		j.handle(happens(&c, abi.EventMove, w))
		if id%2 == 0 { // half of the ends too
			j.handle(happens(&c, abi.EventDereg, w))
		}
		j.take()
	}
	if len(j.live) > 50 || j.order.Len() != len(j.live) {
		t.Errorf("%d records live, %d in order", len(j.live), j.order.Len())
	}
	if j.nEarly > maxEarly || len(j.early) > maxEarly || len(j.moved) > 50 {
		t.Errorf("%d events wait for %d records, %d moves", j.nEarly, len(j.early), len(j.moved))
	}
	if j.evict == 0 || j.orphan == 0 {
		t.Error("nothing was counted as given up")
	}
}

// The tracer reports a record that it gives up for lack of room, so that a program does not wait
// for its end.
func TestJoinGivenUp(t *testing.T) {
	var c clock
	j := testJoiner(2)
	for id := uint64(1); id <= 3; id++ {
		j.handle(made(&c, id))
	}
	events := wantKinds(t, j, Registered, Registered, GivenUp, Registered)
	if r := events[2].Record; r.ID != 1 || r.Ended != "" || r.Placement.Memory != placement.PeerToPeer {
		t.Errorf("%+v", r)
	}
	if j.evict != 1 || j.live[1] != nil || j.live[3] == nil {
		t.Errorf("%d given up, %d live", j.evict, len(j.live))
	}
}
