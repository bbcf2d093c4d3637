// SPDX-License-Identifier: Apache-2.0

package cqueue

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
)

// Set is the completion queues of an endpoint. Its methods may be called from several goroutines
// at once.
type Set struct {
	nic   *memory.NIC
	most  int    // connections
	event func() // the NIC has raised an event

	list atomic.Pointer[List] // replaced, never changed: polling needs no lock

	mu      sync.Mutex // held while a queue is made
	retired []*Queue   // queues that failed, closed with the set
}

// List is the queues of a Set at some time. It does not change.
type List []*Queue

// New returns a set without queues, for that many connections of a NIC. event is called when a
// queue that was armed has a completion; it must not block.
func New(n *memory.NIC, most int, event func()) *Set {
	s := &Set{nic: n, most: most, event: event}
	s.set(nil)
	return s
}

// perQueue is the number of connections that the first completion queue of a set has room for,
// unless the set is for fewer. Each further queue has room for four times as many as the one
// before it.
const perQueue = 64

// Reserve finds room for a connection's work requests, in an existing queue or a new one.
func (s *Set) Reserve(room int) (*Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := *s.All()
	for _, q := range list {
		if q.free >= room {
			q.free -= room
			return q, nil
		}
	}
	conns := min(perQueue<<min(2*len(list), 16), s.most)
	q := &Queue{set: s, wc: make([]ibvfd.WC, pollBatch)}
	var err error
	for {
		depth := s.nic.Device().QueueDepth(conns * room)
		if q.cq, err = s.nic.Device().Queue(depth, s.event, q.broke); err == nil {
			q.free = depth - room
			break
		}
		if conns /= 4; conns == 0 { // the device may have memory for a shorter queue
			return nil, err
		}
	}
	s.set(append(slices.Clone(list), q))
	return q, nil
}

// All returns the current queues. The pointer changes when they change.
func (s *Set) All() *List { return s.list.Load() }

func (s *Set) set(list List) { s.list.Store(&list) }

// retire excludes a queue from new connections, and from All.
func (s *Set) retire(q *Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := *s.All()
	if i := slices.Index(list, q); i >= 0 {
		s.set(slices.Concat(list[:i], list[i+1:]))
		s.retired = append(s.retired, q)
	}
}

// Close destroys the queues. A queue with a link that could not be closed stays; the NIC tries
// again when it closes that link.
func (s *Set) Close() {
	s.mu.Lock()
	all := append(slices.Clone(*s.All()), s.retired...)
	s.mu.Unlock()
	for _, q := range all {
		_ = s.nic.End(q.cq.Close)
	}
}
