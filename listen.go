// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/handshake"
)

// Listen accepts connections on a TCP address ("host:port"; port 0 chooses one),
// or one of rdma_cm's ("rdma_cm://host:port"), and returns it. Accept returns who
// connected. Who goes before it was accepted is forgotten, and OnReject told of it; who
// was accepted stays in the table, as [Peer] says, and [Endpoint.Lost] tells when it is
// gone.
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
	if addr, ok := overCM(addr); ok {
		return e.listenCM(addr)
	}
	return net.Listen("tcp", addr)
}

// pendingHandshakes is how many callers of an endpoint may be in the middle of a handshake,
// at all of its listeners together. Each has a descriptor and two goroutines, three as it is
// ended, and one of rdma_cm's has pinned memory and a queue pair; once it has said hello, it
// has the queue pairs of its connection, too. Those whose place is another's already are at
// most handshake.Ending more.
const pendingHandshakes = 256

func (e *Endpoint) serve(l net.Listener) {
	s := handshake.Server{Pending: e.pending, Timeout: e.opt.ConnectTimeout, Handshake: e.acceptCaller, OnReject: e.opt.OnReject}
	s.Serve(e.life, l)
}

// acceptCaller makes a connection with a caller, who becomes a peer when it is made: who has
// only said hello takes no place in the table. What is wrong is told to OnReject.
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
	if c.peer != 0 { // listenTo tells OnReject
		return nil
	}
	return err
}

// hasPlace refuses a caller for whom the table has no place.
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

// enlist makes a caller that is connected a peer, and has Accept return it. From here on its
// handshake cannot be ended for another caller's.
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

// join gives the connection of a caller its number in the table, and has it start, unless it has
// ended meanwhile.
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

// unlist takes a peer out of the table.
func (e *Endpoint) unlist(id Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget(id)
}

// announce has Accept return a peer.
func (e *Endpoint) announce(p *peer) error {
	e.mu.Lock() // nobody else puts one in
	defer e.mu.Unlock()
	for range len(e.accepted) { // those that are gone take no place
		select {
		case q := <-e.accepted:
			if !q.conn.over.Load() {
				e.accepted <- q
			}
		default: // accepted meanwhile
		}
	}
	select {
	case e.accepted <- p:
		return nil
	default:
		return fmt.Errorf("%w: nobody accepts it", ErrNotConnected)
	}
}

// Accept waits for somebody to connect.
func (e *Endpoint) Accept(ctx context.Context) (Peer, error) {
	for {
		select {
		case p := <-e.accepted:
			c := p.conn // there is one for good: somebody has connected
			c.mu.Lock()
			there := c.state != dead // nor removed meanwhile
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
