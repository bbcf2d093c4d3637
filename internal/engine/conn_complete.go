// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"errors"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/slab"
)

// Complete takes completions, and posts operations for which they make room.
func (c *Conn) Complete(wcs []ibvfd.WC) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var failed error
	for i := range wcs {
		if err := c.completed(&wcs[i]); failed == nil {
			failed = err
		}
	}
	if c.state == dead {
		return // teardown waits for them
	}
	if failed != nil {
		c.abort(failed)
		return
	}
	c.kickRecv()
	c.kick()
}

// completed takes one completion. After an error the queue pair cannot be used any more.
func (c *Conn) completed(wc *ibvfd.WC) error {
	kind, failed := cqueue.Kind(wc.ID), wc.Err()
	if kind == idRecv {
		return c.received(wc, failed)
	}
	q := &c.q[kind]
	seq := q.number(wc.ID)
	q.seen = max(q.seen, seq+1)
	if failed != nil {
		if !q.failed && seq > q.first { // earlier ones without a completion have succeeded
			c.pass(q, seq-1)
		}
		if !q.failed {
			q.refused = refusedByPeer(wc.Status)
		}
		q.failed = true
		if i := seq - q.first; i < uint64(q.groups.Len()) {
			if o := q.groups.At(int(i)).op; o.err == nil {
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

// refusedByPeer reports whether a status is the peer's answer to a request.
func refusedByPeer(s ibvfd.WCStatus) bool {
	return s == ibvfd.WCRemAccessErr || s == ibvfd.WCRemInvReqErr || s == ibvfd.WCRemOpErr
}

// pass ends the groups up to a number; they have succeeded.
func (c *Conn) pass(q *sendQueue, seq uint64) {
	for q.groups.Len() > 0 && q.first <= seq {
		g := q.groups.Pop()
		q.first++
		q.free += g.wrs
		if g.final {
			c.finish(g.op, nil)
		}
	}
}

func (c *Conn) received(wc *ibvfd.WC, failed error) error {
	r := &c.rq
	seq := cqueue.Number(wc.ID, r.first)
	r.seen = max(r.seen, seq+1)
	if seq != r.first || r.posted.Len() == 0 {
		return failed
	}
	o := *r.posted.Front()
	if failed != nil {
		if o.err == nil {
			o.err = failed
		}
		return failed
	}
	r.posted.Pop()
	r.first++
	o.length = int64(wc.ByteLen)
	if o.letter.kind == mailReceive {
		if wc.Opcode != ibvfd.WCOpRecv {
			return &dmabuf.Error{Op: "receive", Detail: "data that is no message", Err: ErrMalformed}
		}
		if err := c.mailArrived(o); err != nil {
			return err
		}
		o.started = false
		r.waiting.Push(o)
		return nil
	}
	o.flags &^= operation.FlagRemoteCQData
	if wc.Flags&ibvfd.WCWithImm != 0 {
		o.flags |= operation.FlagRemoteCQData
		o.data = wc.Imm
	}
	if wc.Opcode == ibvfd.WCOpRecvWriteImm {
		o.kind = operation.RemoteWrite
	}
	auto := o.auto
	c.finish(o, nil)
	if auto {
		again := c.e.newWork(operation.Recv, 0, nil)
		again.auto = true
		r.waiting.Push(again)
	}
	return nil
}

// finish completes an op after the ops that ended before it. The op must not be in a queue.
// Bytes received in staged memory are first copied to their source, and memory that was
// allocated for the op is freed.
func (c *Conn) finish(o *Work, err error) {
	if err == nil {
		err = o.withdrawn
	}
	o.err = err
	c.done.Push(o)
	if err == nil && o.slowEnd() {
		c.later(o, (*Work).arrive)
	}
	c.deliver()
}

// deliver hands ended ops to the program, in order.
func (c *Conn) deliver() {
	for c.done.Len() > 0 && !(*c.done.Front()).busy {
		c.hand(c.done.Pop())
	}
}

func (c *Conn) hand(o *Work) {
	c.mail.unstamp(o)
	if o.letter.kind >= mailCredit { // the program did not post it
		c.recycle(o)
		return
	}
	recv := o.kind == operation.Recv || o.kind == operation.RemoteWrite
	if o.letter.kind == MailMessage && !recv {
		o.length = int64(max(o.letter.length-mailHead, 0))
	}
	if !recv {
		c.posted--
		if o.started {
			c.active--
		}
		c.vacate()
		if o.err == nil {
			c.counts.Done++
			c.counts.Bytes += o.length
		} else {
			c.counts.Failed++
		}
	}
	err := o.err
	if err != nil && o.auto {
		// Only the first automatic receive reports the end, and only to a program that knows the
		// peer.
		if c.told || c.uninvited || c.peer == 0 || c.state == dead && errors.Is(c.cause, errOwnEnd) {
			c.recycle(o)
			return
		}
		c.told = true
	}
	if err == nil && o.silent && !recv {
		c.recycle(o)
		return
	}
	sink := o.sink
	done := operation.Completion{Context: o.context, Op: o.kind, Peer: c.peer, Len: o.length}
	if recv && o.flags&operation.FlagRemoteCQData != 0 {
		done.Flags, done.Data = operation.FlagRemoteCQData, o.data
	}
	if err != nil {
		done.Len = 0
		done.Err = &operation.Error{Op: o.kind, Peer: c.peer, NIC: c.e.nic.Name(), Err: err}
	}
	if o.result && err == nil {
		done.Value = binary.NativeEndian.Uint64(o.slot.Bytes(slab.ResultSize))
	}
	c.recycle(o) // before the program knows of the end: then it may free the memory
	if sink != nil {
		sink.Complete(done)
	} else {
		c.e.Push(done)
	}
}
