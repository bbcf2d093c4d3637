// SPDX-License-Identifier: Apache-2.0

package workqueue

// Ticket names a posted work until it has ended. The zero Ticket names none.
type Ticket struct {
	q   *Queue
	o   *Work
	use uint32
}

// Cancel withdraws the work requests of a work that the NIC does not have: why becomes the work's
// error. It returns true if the NIC had none of them, and false if it had some, or if the work
// has ended.
func (t Ticket) Cancel(why error) bool {
	q := t.q
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	withdrawn := t.withdraw(why)
	q.send.kick()
	return withdrawn
}

// Evict ends a work, and all that were posted after it, with ErrEvicted if no NIC has had any of them.
func (t Ticket) Evict() {
	q, o := t.q, t.o
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if o.uses.Load() != t.use || o.made || o.ended || q.state == dead {
		return
	}
	list, unbegun := q.send.from(o)
	if !unbegun {
		return
	}
	for _, x := range list {
		q.cancel(x, ErrEvicted)
	}
	q.send.kick()
}

// CancelAll is Cancel of several works of one connection: none of them is posted meanwhile.
func CancelAll(list []Ticket, why error) {
	if len(list) == 0 {
		return
	}
	q := list[0].q
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range list {
		t.withdraw(why)
	}
	q.send.kick()
}

// withdraw is Cancel for callers that hold the Queue's mutex, and call kick.
func (t Ticket) withdraw(why error) bool {
	q, o := t.q, t.o
	if o.uses.Load() != t.use || o.made || o.ended || q.state == dead {
		return false
	}
	return q.cancel(o, why)
}

// cancel withdraws a work that is pending. The caller calls kick.
func (q *Queue) cancel(o *Work, why error) bool {
	if o.withdrawn == nil {
		o.withdrawn = why
	}
	if o.again && q.state != up { // Link.Resume ends it
		return false
	}
	if o.cancel != nil {
		o.cancel()
	}
	if o.busy { // kick ends it when the slow work is done
		if o.err == nil {
			o.err = o.withdrawn
		}
		return true
	}
	if !q.send.forget(o) {
		return false
	}
	s := &q.send.queues[o.queue]
	begun := o.begun
	last := -1
	for i := s.groups.Len() - 1; i >= 0; i-- {
		if s.groups.At(i).op == o {
			last = i
			break
		}
	}
	o.made = true
	if last >= 0 {
		s.groups.At(last).final = true
	} else {
		q.finish(o, o.withdrawn)
	}
	return !begun
}

// Shut makes the connection take no works any more, and cancels all works as Cancel does: why
// becomes their error, and the error of later calls.
func (q *Queue) Shut(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.End.shut = why
	q.vacate()
	for i := 0; (q.state == up || q.begun.Load()) && q.state != dead && i < q.send.pending.Len(); {
		n := q.send.pending.Len()
		if q.cancel(*q.send.pending.At(i), why); q.send.pending.Len() == n {
			i++ // slow work is under way
		}
	}
	q.send.kick()
}
