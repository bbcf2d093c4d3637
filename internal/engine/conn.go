// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/offers"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Conn is a connection to a peer: Works carries out the operations, Offers has the memory that the
// two sides have offered each other, and links make the link over which both go. Its mutex is held
// for microseconds, and may be locked before those of Works and Offers, never after them; the
// endpoint's mutex is never held together with a connection's.
type Conn struct {
	Works  *workqueue.Queue
	Offers *offers.Table

	e     *Endpoint
	opt   *EndpointOptions
	token uint64        // names the connection to the peer
	own   bool          // the program uses the Conn itself, and has no Peer for it
	ended chan struct{} // closed when the teardown is complete, and the cause is final
	links links

	Blocks workqueue.BlockCounter // of the peer's writes; CountBlocks counts

	mu        sync.Mutex
	peer      operation.Peer // 0 until a caller is in the table
	info      PeerInfo
	peerNICs  int             // Rails.NICs of the peer
	peerAddrs []netip.Addr    // Rails.Addrs of the peer
	rail      int             // the rail's number
	group     uint64          // the Session of the first rail
	messages  *mailbox.Shared // of all rails; nil if there is one only

	listener  *Listener           // the listener that the peer has called; nil if this side has called
	uninvited bool                // Accept has not returned the peer yet
	shares    map[*share]struct{} // nil when the keys are withdrawn
	peerGone  bool                // the peer's queue pairs are destroyed

	onEnd    func()        // called at the end; nil if there is none
	finished bool          // onEnd was called
	closing  chan struct{} // nil until Close is called, closed when closeErr is set
	closeErr error
}

// newConn makes a connection for a peer. The caller holds the endpoint's mutex, and Close
// waits until the connection has ended.
func (e *Endpoint) newConn(p *peer, opt *EndpointOptions) *Conn {
	c := &Conn{
		e: e, opt: opt, peer: p.id, token: memory.NewID(), own: opt != &e.opt, ended: make(chan struct{}), shares: map[*share]struct{}{},
	}
	c.links.c = c
	c.Works = workqueue.New(workqueue.Config{
		Pool: e.pool, Progress: e.Progress, Life: e.life, Aborted: c.teardown, Lost: c.links.lost, Patience: opt.PeerTimeout,
		Peer: p.id, Depth: opt.Depth, RecvDepth: opt.RecvDepth, Room: opt.room(), AutoReceive: opt.AutoReceive,
	})
	c.Offers = offers.New(offers.Config{
		Send: c.sendMessage, Share: c.Share, Unshare: e.Unshare, Permits: c.Works.Permits, Refusal: c.Works.End.Refusal,
		Drain: c.drain, Fail: c.Works.Link.Fail, Go: e.tasks.Go, Life: c.Works.Life(), Ended: c.ended, Timeout: opt.PeerTimeout,
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

// Receive waits for a message of the kind, and returns it; its bytes are the caller's. After
// the end of the connection it returns the messages that have arrived, and then the error.
func (c *Conn) Receive(ctx context.Context, kind mailbox.Kind) (mailbox.Mail, error) {
	for {
		over := false
		select {
		case <-c.ended: // the end comes before this look: no message is added after it
			over = true
		default:
		}
		if m, ok := c.Works.TakeMessage(kind, over); ok {
			return m, nil
		}
		if over {
			return mailbox.Mail{}, c.Works.End.Gone()
		}
		if err := c.e.Await(ctx, c.Works.MessageSignal(kind), c.ended); err != nil {
			return mailbox.Mail{}, &failure.Error{Op: "receive", Detail: fmt.Sprintf("the peer has sent no %v", kind), Err: err}
		}
	}
}

// CountBlocks counts blocks of the peer's writes, for the connection and the endpoint.
func (c *Conn) CountBlocks(b workqueue.Blocks) {
	c.Blocks.Count(b)
	c.e.blocks.Count(b)
}

// Peer returns what is known of the peer.
func (c *Conn) Peer() PeerInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info
}

// PeerNICs returns how many NICs the peer has for rails, 0 if the connection has one rail only; and
// the connection's name, which is the Group of later rails.
func (c *Conn) PeerNICs() (n int, group uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peerNICs, c.links.session
}

// PeerAddrs returns the addresses of the peer's NICs by the number of the rail, as far as the peer has
// told them.
func (c *Conn) PeerAddrs() []netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peerAddrs
}

// Messages returns the messages of all rails; nil if there is one rail only.
func (c *Conn) Messages() *mailbox.Shared {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messages
}

// isLater reports whether the connection is a rail after the first.
func (c *Conn) isLater() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rail > 0
}

// LocalAddr returns this side's address of the exchange.
func (c *Conn) LocalAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links.last == nil {
		return nil
	}
	return c.links.last.tcp.LocalAddr()
}

// Path returns the path of the connection.
func (c *Conn) Path() ConnPath {
	if l := c.links.current(); l != nil {
		return *l.path
	}
	return ConnPath{NIC: c.e.nic.Name()}
}

// Depth returns the number of operations that may be under way.
func (c *Conn) Depth() int { return c.opt.Depth }

// Lost returns the number of links that the connection has lost and replaced.
func (c *Conn) Lost() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.links.number)
}

// PeerTimeout returns EndpointOptions.PeerTimeout.
func (c *Conn) PeerTimeout() time.Duration { return c.opt.PeerTimeout }

// Up reports whether the connection can be used: it has not ended, and its port is active, as
// far as that is known.
func (c *Conn) Up() bool {
	s := c.Works.State()
	return s.Up && s.Link.Down() == nil // Down may ask the kernel
}

// Done returns a channel that is closed when the connection has ended, and all earlier operations
// of the peer have arrived.
func (c *Conn) Done() <-chan struct{} { return c.ended }

// OnEnd makes the connection call f when it has ended: once, before Done's channel is closed, or
// now if it has ended. f must not block.
func (c *Conn) OnEnd(f func()) {
	c.mu.Lock()
	over := c.finished
	if !over {
		c.onEnd = f
	}
	c.mu.Unlock()
	if over {
		f()
	}
}

// Err returns why the connection has begun to end, nil before that. Until Done is closed the reason
// may still become more precise.
func (c *Conn) Err() error { return c.Works.End.Err() }

// Explain adds to the error of an operation that has waited for too long that the link is lost.
func (c *Conn) Explain(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if why := c.Works.Link.LostFor(); why != nil {
		return fmt.Errorf("%w; the link is lost: %w", err, why)
	}
	return err
}
