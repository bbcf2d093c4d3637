// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"github.com/gpurdma/gpurdma/ibvfd"
)

// progress takes completions, and goes on with what they make room for.
func (c *conn) progress() {
	if c.link == nil || c.state == dead {
		return
	}
	for {
		n, err := c.link.poll(c.e.wc)
		if err != nil {
			c.abort(err)
			return
		}
		for i := range c.e.wc[:n] {
			if err := c.completed(&c.e.wc[i]); err != nil {
				// The rest of the batch is among what abort would drain.
				for i++; i < n; i++ {
					_ = c.completed(&c.e.wc[i])
				}
				c.abort(err)
				return
			}
		}
		if n < len(c.e.wc) {
			break
		}
	}
	if err := c.link.broken(); err != nil {
		c.abort(err)
		return
	}
	c.kickRecv()
	c.kick()
}

// completed takes one completion. An error is one after which the queue pair is
// of no more use.
func (c *conn) completed(wc *ibvfd.WC) error {
	kind, seq, failed := wc.ID>>idShift, wc.ID&(1<<idShift-1), wc.Err()
	if kind == idRecv {
		return c.received(wc, seq, failed)
	}
	q := &c.q[kind]
	q.seen = max(q.seen, seq+1)
	if failed != nil {
		if !q.failed && seq > q.first { // what came before and did not say so has succeeded
			c.pass(q, seq-1)
		}
		q.failed = true
		if i := seq - q.first; seq >= q.first && i < uint64(q.groups.len()) {
			if o := q.groups.at(int(i)).op; o.err == nil {
				o.err = failed
			}
		}
		return failed
	}
	if !q.failed {
		c.pass(q, seq)
	}
	return nil
}

// pass ends the groups up to a number, which have succeeded.
func (c *conn) pass(q *sendQueue, seq uint64) {
	for q.groups.len() > 0 && q.first <= seq {
		g := q.groups.pop()
		q.first++
		q.free += g.wrs
		if g.final {
			c.finish(g.op, nil)
		}
	}
}

func (c *conn) received(wc *ibvfd.WC, seq uint64, failed error) error {
	r := &c.rq
	r.seen = max(r.seen, seq+1)
	if seq != r.first || r.posted.len() == 0 {
		return failed
	}
	o := *r.posted.front()
	if failed != nil {
		if o.err == nil {
			o.err = failed
		}
		return failed
	}
	r.posted.pop()
	r.first++
	o.length = int64(wc.ByteLen)
	o.flags &^= FlagRemoteCQData
	if wc.Flags&ibvfd.WCWithImm != 0 {
		o.flags |= FlagRemoteCQData
		o.data = wc.Imm
	}
	if wc.Opcode == ibvfd.WCOpRecvWriteImm {
		o.kind = OpRemoteWrite
	}
	auto := o.auto
	c.finish(o, nil)
	if auto {
		again := c.e.newOp(OpRecv, 0, nil)
		again.auto = true
		r.waiting.push(again)
	}
	return nil
}

// finish completes an op. It must not be in any queue any more.
func (c *conn) finish(o *op, err error) {
	recv := o.kind == OpRecv || o.kind == OpRemoteWrite
	if !recv {
		c.posted--
		if o.started {
			c.active--
		}
	}
	if err == nil && o.kind != OpWrite && o.kind != OpSend && o.kind != OpRemoteWrite {
		err = o.arrived(c.e, o.length)
	}
	if err != nil && !(o.auto && c.state == dead) || err == nil && !o.silent || err == nil && recv {
		done := Completion{Context: o.context, Op: o.kind, Peer: c.peer, Len: o.length}
		if recv && o.flags&FlagRemoteCQData != 0 {
			done.Flags, done.Data = FlagRemoteCQData, o.data
		}
		if err != nil {
			done.Len = 0
			done.Err = &OpError{Op: o.kind, Peer: c.peer, NIC: c.e.nic.Name(), Err: err}
		}
		c.e.done.push(done)
		c.e.rouse()
	}
	c.recycle(o)
}
