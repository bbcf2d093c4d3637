// SPDX-License-Identifier: Apache-2.0

package cqueue

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// device is a device of a network in memory, which has memory for short queues only if most is
// not 0.
type device struct {
	*memnic.Device
	most int
}

func (d *device) Queue(depth int, event func(), broke func(error)) (rc.CompletionQueue, error) {
	if d.most > 0 && depth > d.most {
		return nil, unix.ENOMEM
	}
	return d.Device.Queue(depth, event, broke)
}

// queues returns a set for that many connections. All must be free when the test ends.
func queues(t *testing.T, conns int) (*Set, *device) {
	network := memnic.New(memnic.Manual())
	dev := &device{Device: network.Device("fake0", memnic.Limits{MaxSGE: 5})}
	n := memory.NewNIC(dev, memory.NICOptions{})
	s := New(n, conns, func() {})
	t.Cleanup(func() {
		s.Close()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if network.Open() != 0 {
			t.Errorf("%d MRs and links were left", network.Open())
		}
	})
	return s, dev
}

func (s *Set) must(t *testing.T, room int) *Queue {
	t.Helper()
	q, err := s.Reserve(room)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func depthOf(q *Queue) int { return q.cq.(*memnic.Queue).Depth() }

// A completion queue has room for all that its connections may have outstanding. If it is
// full, the endpoint makes another one, four times as long; room that was given back is used
// again.
func TestCompletionQueuesHaveRoom(t *testing.T) {
	const room = 384
	s, _ := queues(t, 1000)
	var taken []*Queue
	for range perQueue + 1 {
		taken = append(taken, s.must(t, room))
	}
	list := *s.All()
	if len(list) != 2 || list[0] != taken[0] || list[1] != taken[perQueue] {
		t.Fatalf("%d queues for %d connections", len(list), len(taken))
	}
	for i, conns := range []int{perQueue, 4 * perQueue} {
		if depth := depthOf(list[i]); depth != conns*room {
			t.Errorf("queue %d holds %d completions, want %d for %d connections", i, depth, conns*room, conns)
		}
	}
	list[0].Release(room)
	if q := s.must(t, room); q != list[0] {
		t.Error("room that was given back is not used")
	}

	few, _ := queues(t, 3)
	if depth := depthOf(few.must(t, room)); depth != 3*room {
		t.Errorf("a queue of %d for three peers", depth)
	}
}

func TestShortCompletionQueues(t *testing.T) {
	const room = 384
	s, dev := queues(t, 64)
	dev.most = 5 * room
	for range 5 {
		s.must(t, room)
	}
	if n := len(*s.All()); n != 2 {
		t.Errorf("%d queues for five connections, of which one is for four", n)
	}
	dev.most = room - 1
	for range 3 {
		s.must(t, room)
	}
	if _, err := s.Reserve(room); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("with no memory for one connection: %v", err)
	}
}

// taker is a connection that counts its completions.
type taker struct{ took int }

func (c *taker) Complete(wcs []ibvfd.WC) { c.took += len(wcs) }
func (c *taker) QueueFailed(error)       {}

// Completions of an ended connection are dropped, even if another connection has its slot.
func TestLateCompletionsAreDropped(t *testing.T) {
	s, _ := queues(t, 64)
	q := s.must(t, 384)
	var before, after taker
	id := q.Enter(&before)
	q.Leave(id)
	if q.of(id) != nil {
		t.Error("the connection still has its slot")
	}
	again := q.Enter(&after)
	if again.slot() != id.slot() {
		t.Fatal("the slot is not used again")
	}
	if again == id || q.of(id) != nil {
		t.Fatal("a late completion finds the next connection")
	}
	dispatch := func(wcs ...ibvfd.WC) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.dispatch(wcs)
	}
	dispatch(ibvfd.WC{ID: id.ID(rc.WriteQueue, 7), Status: ibvfd.WCWRFlushErr}, ibvfd.WC{ID: id.ID(rc.Queues, 0)}, ibvfd.WC{ID: 3<<kindShift | memberMask})
	if before.took != 0 || after.took != 0 {
		t.Errorf("%d and %d late completions were taken", before.took, after.took)
	}
	dispatch(ibvfd.WC{ID: again.ID(rc.WriteQueue, 7)}, ibvfd.WC{ID: again.ID(rc.Queues, 0)})
	if after.took != 2 {
		t.Errorf("%d of 2 completions were taken", after.took)
	}
}

// An ID carries its parts, and a number that no longer fits into it is found again.
func TestIDs(t *testing.T) {
	m := memberOf(slotMask, generationMask)
	for _, number := range []uint64{0, 7, numberMask, numberMask + 1, 5<<numberBits | 3} {
		id := m.ID(rc.Queues, number)
		if Kind(id) != rc.Queues || Member(id).slot() != slotMask || Member(id).generation() != generationMask {
			t.Errorf("%#x", id)
		}
		for _, back := range []uint64{0, 1, 1000} {
			if got := Number(id, number-min(back, number)); got != number {
				t.Errorf("number %d is found as %d", number, got)
			}
		}
	}
}
