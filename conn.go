// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// conn is a connection to a peer. Its mutex is held for what takes microseconds: to post, and to
// take completions. Copies of staged memory, registrations, and the drain of a connection that has
// ended run without it. The order of locks is that of a completion queue's mutex, a connection's,
// and those of what the endpoint shares (ops, slab, completions); the endpoint's own mutex is never
// held together with a connection's.
type conn struct {
	e     *Endpoint
	peer  Peer
	token uint64        // names the connection to the peer
	ready chan struct{} // closed when it is up, or has ended
	ended chan struct{} // closed when nothing of it is left, and cause says why

	offered  chan struct{} // an offer came
	offering chan struct{} // who has put something in may send one

	over atomic.Bool // it is ending, or has ended

	mu    sync.Mutex
	state connState
	cause error // why it has ended
	down  error // why the port carries nothing, or what path did, if it ended because of that

	link       link
	a          linkAttr
	queue      *cqueue
	id         uint64 // of work requests, without the queue pair and the number
	path       *Connection
	tcp        net.Conn
	peerTokens [2]uint64

	pending fifo[*op] // not all work requests made
	active  int       // operations begun and not completed
	posted  int       // operations not completed, receives not counted
	holding bool      // the next Poll tells the NIC
	q       [queues]sendQueue
	rq      recvQueue

	slow   fifo[slowWork] // what takes long for operations
	atWork bool           // a goroutine does it
	idle   sync.Cond      // it has ended
	done   fifo[*op]      // have ended, and wait for those before them

	wrs   []ibvfd.SendWR // a batch
	sges  []ibvfd.SGE
	batch struct{ queue, wrs, sges int }

	offers     fifo[*RemoteBuffer]
	offerBytes int
	uninvited  bool // nobody has accepted it yet
	told       bool // an automatic receive has said that it ended
	shares     map[*share]struct{}

	stuck     bool   // the link did not close
	kept      []*op  // have ended meanwhile; the NIC may still touch their memory
	letSlabGo func() // of which it may touch a part, beyond the endpoint's end
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

// idRecv is the kind of a receive in work requests' IDs; the others are the send queues' numbers.
const idRecv = queues

// newConn makes a connection of a peer in the table. The endpoint's mutex is held, and Close waits
// until the connection has ended.
func (e *Endpoint) newConn(p *peer) *conn {
	c := &conn{
		e: e, peer: p.id, token: newID(), ready: make(chan struct{}), ended: make(chan struct{}),
		offered: make(chan struct{}, 1), offering: make(chan struct{}, 1), shares: map[*share]struct{}{},
	}
	c.idle.L = &c.mu
	p.conn = c
	e.tasks.Add(1)
	for range e.opt.AutoReceive {
		o := e.newOp(OpRecv, 0, nil)
		o.auto = true
		c.rq.waiting.push(o)
	}
	return c
}

// room is what a connection may have outstanding in its completion queue.
func (o *EndpointOptions) room() int { return queues*o.SendDepth + o.RecvDepth }

// adopt gives the connection its queue pairs, on which it can post receives.
func (c *conn) adopt(l link, q *cqueue) {
	c.link, c.a, c.queue = l, l.attr(), q
	for i := range c.q {
		c.q[i].free = c.a.sendDepth
	}
	c.wrs = make([]ibvfd.SendWR, batchWRs)
	c.sges = make([]ibvfd.SGE, max(2*batchWRs, c.a.sge))
	c.kickRecv()
	c.e.done.wakeSleeper() // its queue is to be armed
}

// markUp lets operations go.
func (c *conn) markUp() {
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
	if o.staged {
		c.later(o, (*op).stage)
	}
	if o.flags&FlagMore == 0 {
		c.kick()
		return nil
	}
	if !c.holding {
		c.holding = true
		c.e.held.add(c)
	}
	if c.e.done.sleepers.Load() > 0 { // who sleeps does not look for it
		c.kick()
	}
	return nil
}

// permits refuses keys that were not made for this connection.
func (c *conn) permits(rb *RemoteBuffer) error {
	if c.state == connecting || rb.token == c.peerTokens[0] || rb.token == c.peerTokens[1] {
		return nil
	}
	return &dmabuf.Error{
		Op: "use remote memory", Device: fmt.Sprintf("remote buffer %x", rb.id), Err: ErrStaleKey,
		Remedy: "keys end with the connection that they were given for: ask the peer for new ones",
	}
}
