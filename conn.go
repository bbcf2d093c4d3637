// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// conn is a connection to a peer. The endpoint's mutex guards all of it.
type conn struct {
	e     *Endpoint
	peer  Peer
	state connState
	cause error         // why it is dead
	ready chan struct{} // closed when it is up, or dead

	link  link
	a     linkAttr
	tcp   net.Conn
	token uint64 // names the connection to the peer
	their [2]uint64

	pending fifo[*op] // not all work requests made
	active  int       // operations begun and not completed
	posted  int       // operations not completed, receives not counted
	q       [queues]sendQueue
	rq      recvQueue

	wrs   []ibvfd.SendWR // a batch
	sges  []ibvfd.SGE
	batch struct{ queue, wrs, sges int }

	offers     fifo[*RemoteBuffer]
	offerBytes int
	offered    chan struct{} // an offer came
}

type connState int

const (
	connecting connState = iota
	up
	dead
)

// sendQueue is one queue pair's sending side.
type sendQueue struct {
	free   int // work requests that may be posted
	groups fifo[group]
	first  uint64 // number of the oldest group
	next   uint64
	seen   uint64 // groups before this one have had a completion
	failed bool
}

// group is work requests of one op, the last of which makes a completion.
type group struct {
	op    *op
	wrs   int
	final bool // of the op
}

type recvQueue struct {
	waiting fifo[*op] // until the connection is up
	posted  fifo[*op]
	first   uint64
	next    uint64
	seen    uint64
}

// Work request numbers: the queue in the top bits, then the group's or the
// receive's number.
const (
	idShift = 62
	idRecv  = queues
)

// batchWRs is how many work requests are posted at a time.
const batchWRs = 64

func (e *Endpoint) newConn(p *peer) *conn {
	c := &conn{e: e, peer: p.id, token: newID(), ready: make(chan struct{}), offered: make(chan struct{}, 1)}
	p.conn = c
	for range e.opt.AutoReceive {
		o := e.newOp(OpRecv, 0, nil)
		o.auto = true
		c.rq.waiting.push(o)
	}
	return c
}

// adopt gives the connection its queue pairs, on which it can post receives.
func (c *conn) adopt(l link) {
	c.link, c.a = l, l.attr()
	for i := range c.q {
		c.q[i].free = c.a.sendDepth
	}
	c.wrs = make([]ibvfd.SendWR, batchWRs)
	c.sges = make([]ibvfd.SGE, max(2*batchWRs, c.a.sge))
	c.kickRecv()
}

// goUp lets operations go.
func (c *conn) goUp() {
	c.state = up
	close(c.ready)
	c.kick()
}

// submit takes an op over; an error means that it did not, and has recycled it.
func (c *conn) submit(o *op) error {
	waiting, most := c.posted, c.e.opt.Depth
	if o.kind == OpRecv {
		waiting, most = c.rq.waiting.len()+c.rq.posted.len(), c.e.opt.RecvDepth
	}
	err := c.refusal()
	if err == nil && waiting >= most {
		err = ErrQueueFull
	}
	if err != nil {
		c.e.recycle(o)
		return err
	}
	if o.kind == OpRecv {
		c.rq.waiting.push(o)
		c.kickRecv()
		return nil
	}
	c.posted++
	c.pending.push(o)
	if o.flags&FlagMore == 0 {
		c.kick()
	}
	return nil
}

func (c *conn) refusal() error {
	if c.state != dead {
		return nil
	}
	return c.gone()
}

// gone is why the connection cannot be used.
func (c *conn) gone() error {
	if errors.Is(c.cause, ErrNotConnected) {
		return c.cause
	}
	return fmt.Errorf("%w: %w", ErrNotConnected, c.cause)
}

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
		c.wrs[b.wrs+n-1].Flags |= ibvfd.SendSignaled
		b.wrs += n
		b.sges += used
		q.free -= n
		q.groups.push(group{o, n, o.made})
		q.next++
	}
	return true
}

// flush posts the batch.
func (c *conn) flush() {
	b := &c.batch
	if b.wrs == 0 || c.state != up {
		return
	}
	n := b.wrs
	b.wrs, b.sges = 0, 0
	if _, err := c.link.post(b.queue, c.wrs[:n]); err != nil {
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
		q.failed = true
		if i := seq - q.first; seq >= q.first && i < uint64(q.groups.len()) {
			if o := q.groups.at(int(i)).op; o.err == nil {
				o.err = failed
			}
		}
		return failed
	}
	for !q.failed && q.groups.len() > 0 && q.first <= seq {
		g := q.groups.pop()
		q.first++
		q.free += g.wrs
		if g.final {
			c.finish(g.op, nil)
		}
	}
	return nil
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
		c.e.done = append(c.e.done, done)
	}
	c.e.recycle(o)
}

// flushWait bounds how long a failed link is given to flush. NICs take
// microseconds.
const flushWait = 250 * time.Millisecond

// abort ends the connection: all that is under way completes, with cause or
// with what the NIC says of it, and the keys that the peer was given end.
func (c *conn) abort(cause error) {
	if c.state == dead {
		return
	}
	was := c.state
	c.state, c.cause = dead, cause
	if was == connecting {
		close(c.ready)
	}
	if c.tcp != nil {
		// The peer learns of it. TLS says goodbye, which may take time.
		c.e.tasks.Go(func() { _ = c.tcp.Close() })
	}
	if c.link != nil {
		if err := c.link.fail(); err == nil {
			c.drain()
		}
		// From here on the NIC touches none of the memory.
		c.e.nic.late(c.link.close())
	}
	c.finishAll()
	for rb, s := range c.e.shares {
		if s.conn == c {
			c.e.nic.late(s.close())
			delete(c.e.shares, rb)
		}
	}
	select {
	case c.offered <- struct{}{}:
	default:
	}
}

// drain takes what had completed before the failure, and learns from the NIC
// what failed.
func (c *conn) drain() {
	wc := make([]ibvfd.WC, batchWRs)
	for end := time.Now().Add(flushWait); time.Now().Before(end) && !c.drained(); {
		n, err := c.link.poll(wc)
		if err != nil {
			return
		}
		for i := range wc[:n] {
			_ = c.completed(&wc[i])
		}
		if n == 0 {
			time.Sleep(waitSleep)
		}
	}
}

// drained reports whether each queue's last work request has been heard of.
func (c *conn) drained() bool {
	for i := range c.q {
		if c.q[i].groups.len() > 0 && c.q[i].seen < c.q[i].next {
			return false
		}
	}
	return c.rq.posted.len() == 0 || c.rq.seen == c.rq.next
}

// finishAll completes what is left, each op once, in the order of posting
// within its queue.
func (c *conn) finishAll() {
	var left []*op
	add := func(o *op) {
		if !o.ended {
			o.ended = true
			left = append(left, o)
		}
	}
	for i := range c.q {
		for c.q[i].groups.len() > 0 {
			add(c.q[i].groups.pop().op)
		}
	}
	for _, f := range []*fifo[*op]{&c.pending, &c.rq.posted, &c.rq.waiting} {
		for f.len() > 0 {
			add(f.pop())
		}
	}
	for _, o := range left {
		err := o.err
		switch {
		case err == nil:
			err = c.gone()
		case errors.Is(err, &ibvfd.WCError{Status: ibvfd.WCWRFlushErr}):
			// The cause's status is another operation's.
			err = fmt.Errorf("%w; %w: %v", err, ErrNotConnected, c.cause)
		}
		c.finish(o, err)
	}
}

// permits refuses keys that were not made for this connection.
func (c *conn) permits(rb *RemoteBuffer) error {
	if c.state == connecting || rb.token == c.their[0] || rb.token == c.their[1] {
		return nil
	}
	return &dmabuf.Error{
		Op: "use remote memory", Device: fmt.Sprintf("remote buffer %x", rb.id), Err: ErrStaleKey,
		Remedy: "keys end with the connection that they were given for: ask the peer for new ones",
	}
}
