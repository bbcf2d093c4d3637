// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/handshake"
)

// Listen accepts connections on a TCP address ("host:port"; port 0 chooses one), or on an
// rdma_cm address ("rdma_cm://host:port"), and returns the address. Accept returns the peers
// that have connected. A peer that disconnects before it was accepted is removed, and OnReject
// is called; an accepted peer stays in the table, as [Peer] says, and [Endpoint.Lost] reports
// its end.
func (e *Endpoint) Listen(addr string) (net.Addr, error) {
	if e.opt.TLS != nil {
		if _, err := e.opt.mutual("", false); err != nil {
			return nil, err
		}
	}
	l, err := e.listener(addr)
	if err != nil {
		return nil, err
	}
	if e.opt.TLS == nil {
		if err := e.opt.mayBePlain(l.Addr()); err != nil {
			return nil, joinClose(err, l)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed != nil {
		return nil, joinClose(os.ErrClosed, l)
	}
	e.listeners = append(e.listeners, l)
	e.tasks.Go(func() { e.serve(l) })
	return l.Addr(), nil
}

func (e *Endpoint) listener(addr string) (net.Listener, error) {
	if addr, ok := cmstream.Cut(addr); ok {
		cfg, err := e.streamConfig()
		if err != nil {
			return nil, err
		}
		return cmstream.Listen(e.life, cfg, addr)
	}
	return net.Listen("tcp", addr)
}

// pendingHandshakes is the number of callers of an endpoint that may be in a handshake at
// once, at all of its listeners together. Each has a descriptor and two goroutines, and a
// third one while it is ended. A caller over rdma_cm also has pinned memory and a queue pair;
// after its hello it has the queue pairs of its connection, too. At most handshake.Ending more
// are ending, after another caller has taken their place.
const pendingHandshakes = 256

func (e *Endpoint) serve(l net.Listener) {
	s := handshake.Server{Pending: e.pending, Timeout: e.opt.ConnectTimeout, Handshake: e.acceptCaller, OnReject: e.opt.OnReject}
	s.Serve(e.life, l)
}

// acceptCaller connects a caller. The caller becomes a peer when it is connected: one that has
// only said hello takes no place in the table. OnReject receives the error.
func (e *Endpoint) acceptCaller(ctx context.Context, caller *handshake.Caller) error {
	var c *conn
	err := e.exchange(ctx, caller.Conn, "", caller, func() (*conn, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if err := e.hasPlace(); err != nil {
			return nil, err
		}
		c = e.newConn(new(peer))
		return c, nil
	})
	if err == nil || c == nil {
		return err
	}
	c.end(err)
	<-c.ended
	if c.peer != 0 { // listenTo calls OnReject
		return nil
	}
	return err
}

// hasPlace refuses a caller if the table is full.
func (e *Endpoint) hasPlace() error {
	if e.closed != nil {
		return os.ErrClosed
	}
	gone := func(p *peer) bool { return p.addr == "" && p.conn != nil && p.conn.over.Load() }
	if len(e.peers) < e.opt.MaxPeers || slices.ContainsFunc(e.peers, gone) {
		return nil
	}
	return &rejection{textFull, fmt.Errorf("%w: there are %d peers", dmabuf.ErrLimit, len(e.peers))}
}

// enlist makes a connected caller a peer, which Accept returns. From here on its handshake
// cannot be ended in favour of another caller's.
func (e *Endpoint) enlist(c *conn, caller *handshake.Caller) error {
	e.mu.Lock()
	p, err := e.insert("")
	if err == nil {
		p.conn = c
	}
	e.mu.Unlock()
	if errors.Is(err, dmabuf.ErrLimit) {
		err = &rejection{textFull, err}
	}
	if err != nil {
		return err
	}
	if err := c.join(p.id, caller); err != nil {
		e.unlist(p.id)
		return err
	}
	return e.announce(p)
}

// join gives a caller's connection its number in the table, and starts it, unless it has ended
// meanwhile.
func (c *conn) join(id Peer, caller *handshake.Caller) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusal(); err != nil {
		return err
	}
	if err := caller.Connected(); err != nil {
		return err
	}
	c.peer, c.uninvited = id, true
	if c.tcp == net.Conn(caller) {
		c.tcp = caller.Conn
	}
	c.start()
	return nil
}

// unlist removes a peer from the table.
func (e *Endpoint) unlist(id Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget(id)
}

// announce queues a peer for Accept.
func (e *Endpoint) announce(p *peer) error {
	e.mu.Lock() // one goroutine at a time adds a peer
	defer e.mu.Unlock()
	for range len(e.accepted) { // peers that have ended take no place
		select {
		case q := <-e.accepted:
			if !q.conn.over.Load() {
				e.accepted <- q
			}
		default: // Accept took it meanwhile
		}
	}
	select {
	case e.accepted <- p:
		return nil
	default:
		return fmt.Errorf("%w: too many peers wait for Accept", ErrNotConnected)
	}
}

// Accept waits for a peer that connects, and returns it.
func (e *Endpoint) Accept(ctx context.Context) (Peer, error) {
	for {
		select {
		case p := <-e.accepted:
			c := p.conn // set for good: the peer has connected
			c.mu.Lock()
			there := c.state != dead // nor has Remove been called
			if there {
				c.uninvited = false
			}
			c.mu.Unlock()
			if there {
				return p.id, nil
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-e.life.Done():
			return 0, os.ErrClosed
		}
	}
}
