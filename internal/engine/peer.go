// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// peer is an entry of the address table.
type peer struct {
	id   operation.Peer
	addr string // where to connect on first use; "" if the peer has connected
	conn *Conn  // nil until the first use
}

// Insert adds the address on which a peer's endpoint listens to the table; the forms are those
// of Connect. The first operation that needs the connection makes it, and so does the first
// operation after the connection was lost.
func (e *Endpoint) Insert(addr string) (operation.Peer, error) {
	at, _ := cmstream.Cut(addr)
	if _, _, err := net.SplitHostPort(at); err != nil {
		return 0, &dmabuf.Error{Op: "insert an address", Device: addr, Remedy: "use host:port, or rdma_cm://host:port", Err: err}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := e.insert(addr)
	if err != nil {
		return 0, err
	}
	return p.id, nil
}

func (e *Endpoint) insert(addr string) (*peer, error) {
	if e.closed != nil {
		return nil, e.isClosed()
	}
	if len(e.peers) >= e.opt.MaxPeers {
		e.makeWay()
	}
	if len(e.peers) >= e.opt.MaxPeers {
		return nil, &dmabuf.Error{
			Op: "add a peer", Device: e.nic.Name(), Detail: fmt.Sprintf("there are %d", len(e.peers)),
			Remedy: "raise the number of peers (MaxPeers), or end some", Err: dmabuf.ErrLimit,
		}
	}
	e.lastPeer++
	p := &peer{id: e.lastPeer, addr: addr}
	e.peers = append(e.peers, p)
	return p, nil
}

// makeWay removes from the table the oldest peer whose connection is lost for good.
func (e *Endpoint) makeWay() {
	for _, p := range e.peers {
		if p.addr == "" && p.conn != nil && p.conn.over.Load() {
			e.forget(p.id)
			return
		}
	}
}

// find returns the index of a peer in the table, whose numbers ascend.
func (e *Endpoint) find(id operation.Peer) (int, bool) {
	return slices.BinarySearchFunc(e.peers, id, func(p *peer, id operation.Peer) int { return cmp.Compare(p.id, id) })
}

// lookup returns a peer's entry.
func (e *Endpoint) lookup(id operation.Peer) (*peer, error) {
	if e.closed != nil {
		return nil, e.isClosed()
	}
	i, ok := e.find(id)
	if !ok {
		return nil, fmt.Errorf("peer %d: %w", id, ErrNotConnected)
	}
	return e.peers[i], nil
}

// forget removes a peer from the table, if it is in it. It makes a new slice: a goroutine that
// goes through the table meanwhile keeps the old one.
func (e *Endpoint) forget(id operation.Peer) {
	if i, ok := e.find(id); ok {
		e.peers = slices.Concat(e.peers[:i], e.peers[i+1:])
	}
}

// Remove ends the connection to a peer, if there is one, and removes the peer from the table.
// Operations under way with it complete with an error.
func (e *Endpoint) Remove(id operation.Peer) error {
	e.mu.Lock()
	p, err := e.lookup(id)
	if err != nil {
		e.mu.Unlock()
		return err
	}
	e.forget(id)
	c := p.conn
	e.mu.Unlock()
	if c != nil {
		c.Abort(errOwnEnd)
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
	e.mu.Lock()
	p, err := e.lookup(id)
	var c *Conn
	if err == nil {
		if c = p.conn; c == nil {
			err = fmt.Errorf("peer %d: %w: no operation has needed it yet", id, ErrNotConnected)
		}
	}
	e.mu.Unlock()
	if err != nil {
		return err
	}
	return c.lost(ctx)
}

// Peers returns the peers in the table.
func (e *Endpoint) Peers() []operation.Peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []operation.Peer
	for _, p := range e.peers {
		list = append(list, p.id)
	}
	return list
}
