// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/fifo"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// Conn is a connection to a peer. Its mutex is held for microseconds: to post, and to take
// completions. Copies of staged memory, registrations, and the drain of a connection that has
// ended run without it. The order of locks is: a completion queue's mutex, a connection's, and
// those of the parts that the endpoint shares (ops, slab, completions); the endpoint's own
// mutex is never held together with a connection's.
type Conn struct {
	e     *Endpoint
	opt   *EndpointOptions
	peer  operation.Peer
	token uint64        // names the connection to the peer
	ready chan struct{} // closed when the connection is up, or has ended
	ended chan struct{} // closed when the teardown is complete, and cause is final

	offered  chan struct{} // signals that an offer came
	offering chan struct{} // a lock: the goroutine that has put a value in may send an offer

	over atomic.Bool // the connection is ending, or has ended

	mu    sync.Mutex
	state connState
	cause error // why the connection has ended
	down  error // the state of the port, or the path, if the connection ended because of it

	link       rc.Link
	a          rc.Attr
	queue      *cqueue.Queue
	id         cqueue.Member
	path       *ConnPath
	info       PeerInfo
	tcp        net.Conn
	peerTokens [2]uint64

	pending fifo.Queue[*Work] // operations whose work requests are not all made
	active  int               // operations that have begun and not completed
	posted  int               // operations that have not completed, without receives
	holding bool              // the next Poll posts the operations
	q       [rc.Queues]sendQueue
	rq      recvQueue

	slow   fifo.Queue[slowWork] // slow work of operations
	atWork bool                 // a goroutine does the slow work
	idle   sync.Cond            // signals that the goroutine has ended
	done   fifo.Queue[*Work]    // operations that have ended, and wait for those before them

	wrs   []ibvfd.SendWR // a batch
	sges  []ibvfd.SGE
	batch struct{ queue, wrs, sges int }

	offers     fifo.Queue[*memory.RemoteBuffer]
	offerBytes int
	names      names
	own        bool      // the program has the Conn, and the table does not need it
	listener   *Listener // that the peer has called; nil if this side has called
	uninvited  bool      // Accept has not returned the peer yet
	told       bool      // an automatic receive has reported the end
	shares     map[*share]struct{}

	counts    Counts
	mail      mailbox
	theirMail exchange.Mail

	vacancy chan struct{}   // closed when there is room for a work; nil unless a goroutine waits
	life    context.Context // ends when the connection begins to end
	stop    context.CancelFunc
	waits   int // works whose sources are not ready

	reading  bool          // a goroutine reads the exchange, and closes readDone when it ends
	readDone chan struct{} // also closed if there was none
	heard    chan struct{} // closed when farewell is set
	farewell error         // the peer's reason for the end; nil before that
	peerGone bool          // the peer's queue pairs are destroyed
	cut      bool          // a message of the exchange was sent in part: no more can follow
	unknown  bool          // some operations may or may not have reached the peer
	shut     bool          // Close was called
	onEnd    func()        // called at the end; nil if there is none
	finished bool          // onEnd was called
	closing  chan struct{} // nil until Close is called, closed when closeErr is set
	closeErr error

	stuck     bool    // closing the link failed
	kept      []*Work // operations that have ended since; the NIC may still touch their memory
	letSlabGo func()  // releases the slab, which the NIC may touch beyond the endpoint's end
}

type connState int

const (
	connecting connState = iota
	up
	dead
)

// sendQueue is the sending side of one queue pair.
type sendQueue struct {
	free    int // work requests that may be posted
	groups  fifo.Queue[group]
	first   uint64 // number of the oldest group
	next    uint64
	seen    uint64 // groups before this number have completed, or one after them has
	failed  bool
	refused bool // the peer's NIC has refused a request: it carried out none after it
}

// group is a number of work requests of one op. The last of them makes a completion, unless
// the op is silent and other work requests follow in the batch.
type group struct {
	op    *Work
	wrs   int
	final bool // the last group of the op
}

type recvQueue struct {
	waiting fifo.Queue[*Work] // until the connection is up
	posted  fifo.Queue[*Work]
	first   uint64
	next    uint64
	seen    uint64
}

// idRecv marks a receive in work requests' IDs; the other values are the send queues' numbers.
const idRecv = rc.Queues

// newConn makes a connection for a peer. The caller holds the endpoint's mutex, and Close
// waits until the connection has ended.
func (e *Endpoint) newConn(p *peer, opt *EndpointOptions) *Conn {
	c := &Conn{
		e: e, opt: opt, peer: p.id, token: memory.NewID(), ready: make(chan struct{}), ended: make(chan struct{}),
		offered: make(chan struct{}, 1), offering: make(chan struct{}, 1), shares: map[*share]struct{}{},
		readDone: make(chan struct{}), heard: make(chan struct{}), own: opt != &e.opt,
	}
	c.life, c.stop = context.WithCancel(e.life)
	c.idle.L = &c.mu
	p.conn = c
	e.tasks.Add(1)
	for range opt.AutoReceive {
		o := e.newWork(operation.Recv, 0, nil)
		o.auto = true
		c.rq.waiting.Push(o)
	}
	return c
}

// room is the number of work requests that a connection may have in its completion queue.
func (o *EndpointOptions) room() int { return rc.Queues*o.SendDepth + o.RecvDepth }

// adopt gives the connection its queue pairs, and posts receives on them.
func (c *Conn) adopt(l rc.Link, q *cqueue.Queue) {
	c.link, c.a, c.queue = l, l.Attr(), q
	for i := range c.q {
		c.q[i].free = c.a.SendDepth
	}
	c.wrs = make([]ibvfd.SendWR, batchWRs)
	c.sges = make([]ibvfd.SGE, max(2*batchWRs, c.a.SGE))
	c.kickRecv()
	c.e.Wake() // the new queue must be armed
}

// markUp starts the connection's operations.
func (c *Conn) markUp() {
	c.state = up
	close(c.ready)
	c.kick()
}

// submit takes an op over. If it returns an error, it has recycled the op.
func (c *Conn) submit(o *Work) error {
	waiting, most := c.posted, c.opt.Depth
	if o.kind == operation.Recv {
		waiting, most = c.rq.waiting.Len()+c.rq.posted.Len(), c.opt.RecvDepth
	}
	err := c.refusal()
	if err == nil && waiting >= most {
		err = c.full(o.kind)
	}
	if err != nil {
		c.e.recycle(o)
		return err
	}
	if o.kind == operation.Recv {
		c.rq.waiting.Push(o)
		c.kickRecv()
		return nil
	}
	c.posted++
	c.pending.Push(o)
	if len(o.ready) > 0 {
		c.awaitReady(o)
	} else if o.staged {
		c.later(o, (*Work).stage)
	}
	if o.flags&operation.FlagMore == 0 {
		c.kick()
		return nil
	}
	if !c.holding {
		c.holding = true
		c.e.Hold(c)
	}
	if c.e.Sleepers() > 0 { // a sleeping goroutine does not poll
		c.kick()
	}
	return nil
}

// full returns the error of an operation for which there is no room.
func (c *Conn) full(kind operation.Kind) error {
	if kind != operation.Recv && c.mail.buf != nil && c.pending.Len() > 0 {
		if first := *c.pending.Front(); !first.started && !c.mail.mayStart(first) {
			return operation.ErrPeerBehind
		}
	}
	return operation.ErrQueueFull
}

// permits refuses keys that were made for another connection.
func (c *Conn) permits(rb *memory.RemoteBuffer) error {
	if c.state == connecting || rb.Token() == c.peerTokens[0] || rb.Token() == c.peerTokens[1] {
		return nil
	}
	return &dmabuf.Error{
		Op: "use remote memory", Device: rb.String(), Err: operation.ErrStaleKey,
		Remedy: "keys end with the connection that they were given for: ask the peer for new ones",
	}
}
