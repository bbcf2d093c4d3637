// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"github.com/gpurdma/gpurdma/ibvfd"
)

// batchWRs is how many work requests are posted at a time.
const batchWRs = 64

// kick makes and posts work requests of what is pending, in order, as far as
// fences and the queues' room allow.
func (c *conn) kick() {
	for c.state == up && c.pending.len() > 0 {
		o := *c.pending.front()
		if !o.started {
			if o.flags&FlagFence != 0 && c.active > 0 {
				break
			}
			c.active++
			if err := o.begin(c); err != nil {
				c.pending.pop()
				c.finish(o, err)
				continue
			}
		}
		if !c.feed(o) {
			break
		}
		c.pending.pop()
	}
	c.flush()
}

// feed makes work requests of o; false if there is no room for all.
func (c *conn) feed(o *op) bool {
	q := &c.q[o.queue]
	for !o.made {
		b := &c.batch
		if b.wrs > 0 && (b.queue != o.queue || b.wrs == len(c.wrs) || len(c.sges)-b.sges < c.a.sge) {
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
		for i := range c.wrs[b.wrs : b.wrs+n] {
			c.wrs[b.wrs+i].ID = uint64(o.queue)<<idShift | q.next
		}
		if !o.silent {
			c.wrs[b.wrs+n-1].Flags |= ibvfd.SendSignaled
		}
		b.wrs += n
		b.sges += used
		q.free -= n
		q.groups.push(group{o, n, o.made})
		q.next++
	}
	return true
}

// flush posts the batch. Its last work request makes a completion, whoever's it is: by
// that the queue learns of the silent ones before.
func (c *conn) flush() {
	b := &c.batch
	if b.wrs == 0 || c.state != up {
		return
	}
	n := b.wrs
	b.wrs, b.sges = 0, 0
	c.wrs[n-1].Flags |= ibvfd.SendSignaled
	if posted, err := c.link.post(b.queue, c.wrs[:n]); err != nil {
		if posted < n { // of the rest nothing will be heard
			c.q[b.queue].next = c.wrs[posted].ID & (1<<idShift - 1)
		}
		c.abort(err)
	}
}

// kickRecv posts receives that wait.
func (c *conn) kickRecv() {
	for c.state != dead && c.link != nil && c.rq.waiting.len() > 0 {
		o := *c.rq.waiting.front()
		err := o.begin(c)
		if err != nil {
			c.rq.waiting.pop()
			c.finish(o, err)
			continue
		}
		n := o.message(c.sges)
		wr := ibvfd.RecvWR{ID: idRecv<<idShift | c.rq.next, SGE: c.sges[:n:n]}
		if _, err := c.link.recv([]ibvfd.RecvWR{wr}); err != nil {
			c.abort(err)
			return
		}
		c.rq.waiting.pop()
		c.rq.posted.push(o)
		c.rq.next++
	}
}
