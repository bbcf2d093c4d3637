// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"fmt"
	"net"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// conn is a connection to a peer. The endpoint's mutex guards all of it.
type conn struct {
	e     *Endpoint
	peer  Peer
	state connState
	cause error         // why it is dead
	down  error         // why the port carries nothing, or what path did, if it died of that
	ready chan struct{} // closed when it is up, or dead

	link  link
	a     linkAttr
	over  *Connection
	tcp   net.Conn
	stuck bool   // the link did not close
	held  []*op  // have ended meanwhile; the NIC may still touch their memory
	slab  *slab  // what it may touch of it, beyond the endpoint's end
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
	ended      chan struct{} // closed when it is dead
	uninvited  bool          // nobody has accepted it yet
	offering   chan struct{} // who has put something in may send one
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
	seen   uint64 // groups before this one have had a completion, or one after them has
	failed bool
}

// group is work requests of one op, the last of which makes a completion, unless the op
// is silent and others follow it in the batch.
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

func (e *Endpoint) newConn(p *peer) *conn {
	c := &conn{e: e, peer: p.id, token: newID(), ready: make(chan struct{}), ended: make(chan struct{}), offered: make(chan struct{}, 1), offering: make(chan struct{}, 1)}
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
	c.e.rouse() // its queue is to be armed
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
	if o.flags&FlagMore == 0 || c.e.sleepers > 0 { // who sleeps does not look for it
		c.kick()
	}
	return nil
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
