// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// A work request's ID contains its send or receive queue, the connection's slot in its
// completion queue, and the request's number. Slots are reused: the generation distinguishes
// the completions of an earlier connection from those of the next one.
const (
	numberBits     = 36
	generationBits = 8
	slotBits       = 18

	generationShift = numberBits
	slotShift       = generationShift + generationBits
	kindShift       = slotShift + slotBits

	numberMask     = 1<<numberBits - 1
	generationMask = 1<<generationBits - 1
	slotMask       = 1<<slotBits - 1

	connMask = slotMask<<slotShift | generationMask<<generationShift // the bits of an ID that name the connection
)

// cqueue is a completion queue that connections share. It has room for all work requests that
// each of them may have outstanding, so that it cannot overrun.
type cqueue struct {
	e    *Endpoint
	cq   rc.CompletionQueue
	free int // unreserved room; the endpoint's queues.mu guards it

	mu    sync.Mutex // held while completions are dispatched: they stay in order
	wc    []ibvfd.WC
	slots []connSlot
	empty []int // free slots
}

type connSlot struct {
	conn       *Conn
	generation uint8
}

// cqueues are an endpoint's completion queues.
type cqueues struct {
	list atomic.Pointer[[]*cqueue] // replaced, never changed: polling needs no lock

	mu      sync.Mutex // held while a queue is made
	retired []*cqueue  // queues that failed, closed with the endpoint
}

// pollBatch is the number of completions that are taken at a time.
const pollBatch = 64

// connsPerQueue is the number of connections that the first completion queue of an endpoint
// has room for, unless MaxPeers is smaller. Each further queue has room for four times as many
// as the one before it.
const connsPerQueue = 64

// reserve finds room for a connection, in an existing queue or a new one.
func (e *Endpoint) reserve(room int) (*cqueue, error) {
	e.queues.mu.Lock()
	defer e.queues.mu.Unlock()
	list := e.queues.all()
	for _, q := range list {
		if q.free >= room {
			q.free -= room
			return q, nil
		}
	}
	conns := min(connsPerQueue<<min(2*len(list), 16), e.opt.MaxPeers)
	q := &cqueue{e: e, wc: make([]ibvfd.WC, pollBatch)}
	var err error
	for {
		depth := e.nic.Device().QueueDepth(conns * room)
		if q.cq, err = e.nic.Device().Queue(depth, e.event, q.broke); err == nil {
			q.free = depth - room
			break
		}
		if conns /= 4; conns == 0 { // the device may have memory for a shorter one
			return nil, err
		}
	}
	e.queues.set(append(slices.Clone(list), q))
	return q, nil
}

// release gives back the room of a connection that has no more completions.
func (q *cqueue) release(room int) {
	q.e.queues.mu.Lock()
	defer q.e.queues.mu.Unlock()
	q.free += room
}

// all returns the current queues.
func (s *cqueues) all() []*cqueue {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (s *cqueues) set(list []*cqueue) { s.list.Store(&list) }

// enter gives a connection a slot. The result is part of its work requests' IDs.
func (q *cqueue) enter(c *Conn) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := len(q.slots)
	if n := len(q.empty); n > 0 {
		i, q.empty = q.empty[n-1], q.empty[:n-1]
	} else {
		q.slots = append(q.slots, connSlot{})
	}
	p := &q.slots[i]
	p.conn = c
	return uint64(i)<<slotShift | uint64(p.generation)<<generationShift
}

// leave frees the slot: completions of the connection that are still in the queue are dropped.
func (q *cqueue) leave(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := int(id >> slotShift & slotMask)
	q.slots[i].conn = nil
	q.slots[i].generation++
	q.empty = append(q.empty, i)
}

// of returns the connection that a completion belongs to, nil if it has ended.
func (q *cqueue) of(id uint64) *Conn {
	i := id >> slotShift & slotMask
	if i >= uint64(len(q.slots)) {
		return nil
	}
	p := &q.slots[i]
	if p.generation != uint8(id>>generationShift) {
		return nil
	}
	return p.conn
}

// close destroys the queues. A queue with a link that could not be closed stays; the NIC tries
// again when it closes that link.
func (s *cqueues) close(n *memory.NIC) {
	for _, q := range append(slices.Clone(s.all()), s.retired...) {
		_ = n.End(q.cq.Close)
	}
}

// poll dispatches all completions in the queue.
func (q *cqueue) poll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.take()
}

// take is poll for callers that hold the mutex.
func (q *cqueue) take() {
	for {
		n, err := q.cq.Poll(q.wc)
		if err != nil {
			q.abort(err)
			return
		}
		q.dispatch(q.wc[:n])
		if n < len(q.wc) {
			return
		}
	}
}

// dispatch gives completions to their connections. It locks a connection's mutex once for
// consecutive completions of that connection.
func (q *cqueue) dispatch(wcs []ibvfd.WC) {
	for len(wcs) > 0 {
		n := 1
		for n < len(wcs) && wcs[n].ID&connMask == wcs[0].ID&connMask {
			n++
		}
		if c := q.of(wcs[0].ID); c != nil {
			c.complete(wcs[:n])
		}
		wcs = wcs[n:]
	}
}

// retire excludes the queue from new connections.
func (q *cqueue) retire() {
	s := &q.e.queues
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.all()
	if i := slices.Index(list, q); i >= 0 {
		s.set(slices.Concat(list[:i], list[i+1:]))
		s.retired = append(s.retired, q)
	}
}

// abort retires the queue, and ends all its connections. The caller holds the queue's mutex.
func (q *cqueue) abort(err error) {
	q.retire()
	for _, p := range q.slots {
		if p.conn != nil {
			p.conn.mu.Lock()
			p.conn.abort(err)
			p.conn.mu.Unlock()
		}
	}
}

// broke is called when the device raises no more events for the queue. It does not block.
func (q *cqueue) broke(why error) {
	go func() {
		q.poll() // takes earlier completions
		q.mu.Lock()
		defer q.mu.Unlock()
		q.abort(why)
	}()
}

// arm makes the next completion raise an event.
func (q *cqueue) arm() {
	if err := q.cq.Arm(); err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.abort(err)
	}
}
