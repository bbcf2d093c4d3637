// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Conn is a connection to a peer: the exchange with the peer's host, the memory that the two
// sides have offered each other, and Works, which carries out the operations. Its mutex is held
// for microseconds, and may be locked before that of Works, never after it; the endpoint's mutex
// is never held together with a connection's.
type Conn struct {
	Works *workqueue.Queue

	e     *Endpoint
	opt   *EndpointOptions
	token uint64        // names the connection to the peer
	ended chan struct{} // closed when the teardown is complete, and the cause is final

	addr      string     // that this side has called; "" if the peer has called
	relinking sync.Mutex // held while the link and the exchange are closed or made

	offering chan struct{} // a lock: the goroutine that has put a value into it may send an offer

	mu   sync.Mutex
	peer operation.Peer // 0 until a caller is in the table
	path *ConnPath
	info PeerInfo
	tcp  net.Conn

	offered   offered // by the peer
	exports   exports
	own       bool                // the program has the Conn, and no Peer for it
	listener  *Listener           // the listener that the peer has called; nil if this side has called
	uninvited bool                // Accept has not returned the peer yet
	shares    map[*share]struct{} // nil when the keys are withdrawn

	reading  bool          // a goroutine reads the exchange, and closes readDone when it ends
	readDone chan struct{} // also closed if there was none
	peerGone bool          // the peer's queue pairs are destroyed
	cut      bool          // a message of the exchange was sent in part: no more can follow
	session  uint64        // names the connection to a listener, if it outlives its links; otherwise 0
	unlinked chan struct{} // closed while there is no link
	attempt  net.Conn      // of a caller that makes another link; nil if there is none
	links    uint32        // number of links after the first

	onEnd    func()        // called at the end; nil if there is none
	finished bool          // onEnd was called
	closing  chan struct{} // nil until Close is called, closed when closeErr is set
	closeErr error
}

// newConn makes a connection for a peer. The caller holds the endpoint's mutex, and Close
// waits until the connection has ended.
func (e *Endpoint) newConn(p *peer, opt *EndpointOptions) *Conn {
	c := &Conn{
		e: e, opt: opt, peer: p.id, token: memory.NewID(), ended: make(chan struct{}),
		offered: offered{arrived: make(chan struct{}, 1)}, offering: make(chan struct{}, 1), shares: map[*share]struct{}{},
		readDone: make(chan struct{}), own: opt != &e.opt, unlinked: make(chan struct{}),
	}
	c.Works = workqueue.New(workqueue.Config{
		Pool: e.pool, Progress: e.Progress, Life: e.life, Aborted: c.teardown, Lost: c.lostLink, Patience: opt.PeerTimeout,
		Peer: p.id, Depth: opt.Depth, RecvDepth: opt.RecvDepth, Room: opt.room(), AutoReceive: opt.AutoReceive,
	})
	p.conn = c
	e.live[c] = struct{}{}
	e.tasks.Add(1)
	return c
}

// NewWork returns an operation. The caller adds its memory, and passes it to Works.Post or to
// Drop. The sink gets the completion, with the context.
func (c *Conn) NewWork(kind operation.Kind, flags operation.Flags, context any, sink operation.Sink) (*workqueue.Work, error) {
	return c.e.pool.New(kind, flags, context, sink)
}

// Drop gives up a work that was not posted.
func (c *Conn) Drop(o *workqueue.Work) { c.e.pool.Put(o) }

// Receive waits for a message of the kind, and returns its bytes, which are the caller's. After
// the end of the connection it returns the messages that have arrived, and then the error.
func (c *Conn) Receive(ctx context.Context, kind mailbox.Kind) ([]byte, error) {
	for {
		over := false
		select {
		case <-c.ended: // the end comes before this look: no message is added after it
			over = true
		default:
		}
		if p, ok := c.Works.TakeMessage(kind, over); ok {
			return p, nil
		}
		if over {
			return nil, c.Works.Gone()
		}
		if err := c.e.Await(ctx, c.Works.MessageSignal(kind), c.ended); err != nil {
			return nil, &dmabuf.Error{Op: "receive", Detail: fmt.Sprintf("the peer has sent no %v", kind), Err: err}
		}
	}
}
