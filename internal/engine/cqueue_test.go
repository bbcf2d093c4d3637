// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// A completion queue has room for all that its connections may have outstanding. If it is
// full, the endpoint makes another one, four times as long; room that was given back is used
// again.
func TestCompletionQueuesHaveRoom(t *testing.T) {
	e := inMemory(t).endpoint(t, EndpointOptions{MaxPeers: 1000})
	room := e.opt.room()
	var taken []*cqueue
	for range connsPerQueue + 1 {
		taken = append(taken, must(e.reserve(room))(t))
	}
	list := e.queues.all()
	if len(list) != 2 || list[0] != taken[0] || list[1] != taken[connsPerQueue] {
		t.Fatalf("%d queues for %d connections", len(list), len(taken))
	}
	for i, conns := range []int{connsPerQueue, 4 * connsPerQueue} {
		if depth := list[i].cq.(*fakeQueue).Depth(); depth != conns*room {
			t.Errorf("queue %d holds %d completions, want %d for %d connections", i, depth, conns*room, conns)
		}
	}
	list[0].release(room)
	if q := must(e.reserve(room))(t); q != list[0] {
		t.Error("room that was given back is not used")
	}

	few := inMemory(t).endpoint(t, EndpointOptions{MaxPeers: 3})
	if depth := must(few.reserve(few.opt.room()))(t).cq.(*fakeQueue).Depth(); depth != 3*few.opt.room() {
		t.Errorf("a queue of %d for three peers", depth)
	}
}

// poorDevice has memory for short queues only.
type poorDevice struct {
	*fakeDevice
	most int
}

func (d poorDevice) Queue(depth int, event func(), broke func(error)) (rc.CompletionQueue, error) {
	if depth > d.most {
		return nil, unix.ENOMEM
	}
	return d.fakeDevice.Queue(depth, event, broke)
}

func TestShortCompletionQueues(t *testing.T) {
	e := inMemory(t).endpoint(t, EndpointOptions{})
	room := e.opt.room()
	dev := fakeOf(e.nic)
	replaceDevice(e.nic, poorDevice{dev, 5 * room})
	for range 5 {
		must(e.reserve(room))(t)
	}
	if n := len(e.queues.all()); n != 2 {
		t.Errorf("%d queues for five connections, of which one is for four", n)
	}
	replaceDevice(e.nic, poorDevice{dev, room - 1})
	for range 3 {
		must(e.reserve(room))(t)
	}
	if _, err := e.reserve(room); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("with no memory for one connection: %v", err)
	}
}

// Completions of an ended connection are dropped, even if another connection has its slot.
func TestLateCompletionsAreDropped(t *testing.T) {
	w := inMemory(t).world(t, EndpointOptions{})
	c := w.a.connTo(w.ab)
	q, id := c.queue, c.id
	w.ok(w.a.Remove(w.ab))
	if q.of(id) != nil {
		t.Error("the connection still has its slot")
	}
	w.connect()
	again := w.a.connTo(w.ab)
	if again.queue != q || again.id&(slotMask<<slotShift) != id&(slotMask<<slotShift) {
		t.Fatal("the slot is not used again")
	}
	if again.id == id || q.of(id) != nil {
		t.Fatal("a late completion finds the next connection")
	}
	late := []ibvfd.WC{{ID: rc.WriteQueue<<kindShift | id | 7, Status: ibvfd.WCWRFlushErr}, {ID: idRecv<<kindShift | id}, {ID: 3<<kindShift | connMask}}
	q.mu.Lock()
	q.dispatch(late)
	q.mu.Unlock()
	mine, theirs := hostKind.make(t, w.a.nic, 8), hostKind.make(t, w.b.nic, 8)
	w.ok(w.a.Write(mine.All(), w.ab, w.share(theirs.All(), allAccess).All(), "goes on"))
	w.done(w.a, operation.Write, "goes on")
}
