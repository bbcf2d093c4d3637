// SPDX-License-Identifier: Apache-2.0

package cqueue

import (
	"sync"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Conn is a connection that has entered a queue. Its methods are called with the queue's mutex
// held.
type Conn interface {
	// Complete takes completions of the connection, in the order in which the NIC made them.
	Complete(wcs []ibvfd.WC)
	// QueueFailed ends the connection's link: its queue has failed.
	QueueFailed(err error)
}

// Queue is a completion queue that connections share. It has room for all work requests that
// each of them may have outstanding, so that it cannot overrun.
type Queue struct {
	set  *Set
	cq   rc.CompletionQueue
	free int // unreserved room; the set's mutex guards it

	mu    sync.Mutex // held while completions are dispatched: they stay in order
	wc    []ibvfd.WC
	slots []slot
	empty []int // free slots
}

type slot struct {
	conn       Conn
	generation uint8
}

// pollBatch is the number of completions that are taken at a time.
const pollBatch = 64

// CQ returns the NIC's queue.
func (q *Queue) CQ() rc.CompletionQueue { return q.cq }

// Release gives back the room of a connection that has no more completions.
func (q *Queue) Release(room int) {
	q.set.mu.Lock()
	defer q.set.mu.Unlock()
	q.free += room
}

// Enter gives a connection a slot, and returns its name in work requests' IDs.
func (q *Queue) Enter(c Conn) Member {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := len(q.slots)
	if n := len(q.empty); n > 0 {
		i, q.empty = q.empty[n-1], q.empty[:n-1]
	} else {
		q.slots = append(q.slots, slot{})
	}
	p := &q.slots[i]
	p.conn = c
	return memberOf(i, p.generation)
}

// Leave frees the slot: completions of the connection that are still in the queue are dropped.
func (q *Queue) Leave(m Member) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := m.slot()
	q.slots[i].conn = nil
	q.slots[i].generation++
	q.empty = append(q.empty, i)
}

// of returns the connection that a completion belongs to, nil if it has left.
func (q *Queue) of(m Member) Conn {
	i := m.slot()
	if i >= len(q.slots) {
		return nil
	}
	p := &q.slots[i]
	if p.generation != m.generation() {
		return nil
	}
	return p.conn
}

// Poll gives all completions in the queue to their connections.
func (q *Queue) Poll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.take()
}

// TryPoll is Poll, unless another goroutine is polling.
func (q *Queue) TryPoll() {
	if q.mu.TryLock() {
		q.take()
		q.mu.Unlock()
	}
}

// take is Poll for callers that hold the mutex.
func (q *Queue) take() {
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

// dispatch gives completions to their connections. It calls Conn.Complete once for consecutive
// completions of a connection.
func (q *Queue) dispatch(wcs []ibvfd.WC) {
	for len(wcs) > 0 {
		n := 1
		for n < len(wcs) && wcs[n].ID&memberMask == wcs[0].ID&memberMask {
			n++
		}
		if c := q.of(Member(wcs[0].ID)); c != nil {
			c.Complete(wcs[:n])
		}
		wcs = wcs[n:]
	}
}

// Retire excludes the queue from new connections.
func (q *Queue) Retire() { q.set.retire(q) }

// abort retires the queue, and ends the links of all its connections. The caller holds the mutex.
func (q *Queue) abort(err error) {
	q.Retire()
	for _, p := range q.slots {
		if p.conn != nil {
			p.conn.QueueFailed(err)
		}
	}
}

// broke is called when the device raises no more events for the queue. It does not block.
func (q *Queue) broke(why error) {
	go func() {
		q.Poll() // takes earlier completions
		q.mu.Lock()
		defer q.mu.Unlock()
		q.abort(why)
	}()
}

// Arm makes the next completion raise an event.
func (q *Queue) Arm() {
	if err := q.cq.Arm(); err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.abort(err)
	}
}
