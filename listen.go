// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Listen accepts connections on a TCP address ("host:port"; port 0 chooses one),
// or one of rdma_cm's ("rdma_cm://host:port"), and returns it. Accept returns who
// connected. Who goes before it was accepted is forgotten; who was accepted stays
// in the table, as [Peer] says, and [Endpoint.Lost] tells when it is gone.
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

// exchanges is how many callers may be in the middle of one at a listener, once
// they have said who they are.
const exchanges = 16

func (e *Endpoint) serve(l net.Listener) {
	room := make(chan struct{}, exchanges)
	var hall lobby
	for {
		raw, err := l.Accept()
		if err != nil {
			if e.life.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, or a connection gone again: go on.
			select {
			case <-e.life.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		ctx, cancel := context.WithTimeout(e.life, e.opt.ConnectTimeout)
		s := hall.enter(cancel)
		e.tasks.Go(func() {
			defer cancel()
			defer hall.leave(s)
			admitted := false
			e.welcome(ctx, raw, func() error {
				hall.leave(s)
				select {
				case room <- struct{}{}:
					admitted = true
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			if admitted {
				<-room
			}
		})
	}
}

// welcome makes a connection for somebody who has called, and is admitted once
// it has said who it is. What is wrong is their concern: they see the connection
// end, and TurnedAway hears of it.
func (e *Endpoint) welcome(ctx context.Context, raw net.Conn, admit func() error) {
	var p *peer
	var err error
	defer func() {
		if err != nil && e.opt.TurnedAway != nil && e.life.Err() == nil {
			e.opt.TurnedAway(raw.RemoteAddr(), err)
		}
	}()
	err = e.exchange(ctx, raw, "", false, func() (*conn, error) {
		if err := admit(); err != nil {
			return nil, err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		var err error
		if p, err = e.insert(""); err != nil {
			return nil, err
		}
		c := e.newConn(p)
		c.uninvited = true
		return c, nil
	})
	if p == nil {
		return
	}
	c := p.conn
	if err == nil {
		err = e.announce(p)
	}
	if err != nil {
		c.end(err)
		<-c.ended
	}
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
