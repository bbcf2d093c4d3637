// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"net"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Insert adds the address on which a peer's endpoint listens to the table; the forms are those
// of Connect. The first operation that needs the connection makes it, and so does the first
// operation after the connection was lost.
func (e *Endpoint) Insert(addr string) (operation.Peer, error) {
	at, _ := cmstream.Cut(addr)
	if _, _, err := net.SplitHostPort(at); err != nil {
		return 0, &failure.Error{Op: "insert an address", Device: addr, Remedy: "use host:port, or rdma_cm://host:port", Err: err}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := e.table.insert(addr)
	if err != nil {
		return 0, err
	}
	return p.id, nil
}

// Remove ends the connection to a peer, if there is one, and removes the peer from the table.
// Operations under way with it complete with an error.
func (e *Endpoint) Remove(id operation.Peer) error {
	e.mu.Lock()
	p, err := e.table.lookup(id)
	if err != nil {
		e.mu.Unlock()
		return err
	}
	e.table.forget(id)
	c := p.conn
	e.mu.Unlock()
	if c != nil {
		c.Works.Abort(workqueue.ErrRemoved)
		<-c.ended
	}
	return nil
}

// Lost waits until the connection to a peer has ended, and returns the reason, which is
// ErrNotConnected. If ctx ends first, it returns ctx's error. A program that only lets peers
// read and write its memory, and has no operations that could fail, learns of the end by Lost,
// without a call of Poll. When Lost returns, Poll has all completions of the connection,
// including those of the peer's operations before the end, and the keys that the peer was
// given are withdrawn.
func (e *Endpoint) Lost(ctx context.Context, id operation.Peer) error {
	c, err := e.lastConn(id)
	if err != nil {
		return err
	}
	if c == nil {
		return fmt.Errorf("peer %d: %w: no operation has needed it yet", id, ErrNotConnected)
	}
	return c.lost(ctx)
}

// lastConn returns the connection to a peer, even after its end, nil if no operation has needed it yet.
func (e *Endpoint) lastConn(id operation.Peer) (*Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := e.table.lookup(id)
	if err != nil {
		return nil, err
	}
	return p.conn, nil
}

// Peers returns the peers in the table.
func (e *Endpoint) Peers() []operation.Peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []operation.Peer
	for _, p := range e.table.peers {
		list = append(list, p.id)
	}
	return list
}

// Up reports whether the connection to a peer can be used, as Conn.Up does; false if there is none.
func (e *Endpoint) Up(id operation.Peer) bool {
	c, err := e.lastConn(id)
	return err == nil && c != nil && c.Up()
}

// ConnPath returns the path of the connection to a peer, even after its end. It returns
// ErrNotConnected if there was no connection.
func (e *Endpoint) ConnPath(id operation.Peer) (ConnPath, error) {
	c, err := e.lastConn(id)
	if err != nil {
		return ConnPath{}, err
	}
	if c != nil && c.links.current() != nil {
		return c.Path(), nil
	}
	return ConnPath{}, fmt.Errorf("peer %d: %w", id, ErrNotConnected)
}
