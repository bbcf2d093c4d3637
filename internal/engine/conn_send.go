// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// PostHeld posts the operations that waited for more.
func (c *Conn) PostHeld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holding = false
	c.kick()
}

// batchWRs is the number of work requests that are posted at a time.
const batchWRs = 64

// kick makes and posts work requests of pending ops, in order, as far as fences, slow work and
// the queues' room allow.
func (c *Conn) kick() {
	c.payCredits()
	for c.state == up && c.pending.Len() > 0 {
		o := *c.pending.Front()
		if !o.started {
			o.expired()
		}
		if o.busy || !o.started && o.err == nil && (o.flags&operation.FlagFence != 0 && c.active > 0 || !c.mail.mayStart(o)) {
			break
		}
		if !o.started {
			o.started = true
			c.active++
			if o.err == nil {
				o.err = o.begin(c)
			}
			if o.err == nil && o.letter.kind != 0 {
				c.mail.stamp(o)
			}
			if o.busy {
				break
			}
		}
		if o.err != nil {
			c.pending.Pop()
			c.finish(o, o.err)
			continue
		}
		if !c.feed(o) {
			break
		}
		c.pending.Pop()
	}
	c.flush()
}

// feed makes work requests of o; it returns false if there is no room for all of them.
func (c *Conn) feed(o *Work) bool {
	q := &c.q[o.queue]
	for !o.made {
		b := &c.batch
		if b.wrs > 0 && (b.queue != o.queue || b.wrs == len(c.wrs) || len(c.sges)-b.sges < c.a.SGE) {
			c.flush()
			if c.state != up {
				return false
			}
		}
		if q.free == 0 {
			return false
		}
		b.queue = o.queue
		n, used := o.make(c, c.wrs[b.wrs:min(len(c.wrs), b.wrs+q.free)], c.sges[b.sges:])
		id := c.id.ID(o.queue, q.next)
		for i := range c.wrs[b.wrs : b.wrs+n] {
			c.wrs[b.wrs+i].ID = id
		}
		if !o.silent {
			c.wrs[b.wrs+n-1].Flags |= ibvfd.SendSignaled
		}
		o.begun = true
		b.wrs += n
		b.sges += used
		q.free -= n
		q.groups.Push(group{o, n, o.made})
		q.next++
	}
	return true
}

// flush posts the batch. Its last work request always makes a completion: it also completes
// the silent ones before it.
func (c *Conn) flush() {
	b := &c.batch
	if b.wrs == 0 || c.state != up {
		return
	}
	n := b.wrs
	b.wrs, b.sges = 0, 0
	c.wrs[n-1].Flags |= ibvfd.SendSignaled
	if posted, err := c.link.Post(b.queue, c.wrs[:n]); err != nil {
		if posted < n { // the others will not complete
			q := &c.q[b.queue]
			q.next = q.number(c.wrs[posted].ID)
		}
		c.abort(err)
	}
}

// number returns the number of a group.
func (q *sendQueue) number(id uint64) uint64 { return cqueue.Number(id, q.first) }

// kickRecv posts waiting receives.
func (c *Conn) kickRecv() {
	for c.state != dead && c.link != nil && c.rq.waiting.Len() > 0 {
		o := *c.rq.waiting.Front()
		if o.busy {
			return
		}
		if !o.started {
			o.started = true
			o.err = o.begin(c)
			if o.busy {
				return
			}
		}
		if o.err != nil {
			c.rq.waiting.Pop()
			c.finish(o, o.err)
			continue
		}
		n := o.message(c.sges)
		wr := ibvfd.RecvWR{ID: c.id.ID(idRecv, c.rq.next), SGE: c.sges[:n:n]}
		if _, err := c.link.Recv([]ibvfd.RecvWR{wr}); err != nil {
			c.abort(err)
			return
		}
		c.rq.waiting.Pop()
		c.rq.posted.Push(o)
		c.rq.next++
	}
}
