// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// Peer is an entry of an endpoint's address table (fi_addr_t). The zero Peer is
// none. A Peer that is not in the table any more is never another's: to use it
// answers ErrNotConnected.
//
// Whose connection is lost stays in the table until it is removed, so that it says
// why, or until the table is full and somebody else needs its place: the oldest of
// those that are gone gives way. What Insert added stays.
type Peer int

// peer is who can be talked to.
type peer struct {
	id   Peer
	addr string // where to connect on first use; "" if somebody connected
	conn *conn  // nil until the first use
}

// Insert adds an address to the table: what a peer's endpoint listens on, as
// for Connect. The connection is made when an operation first needs it, and made
// anew by the first operation after it was lost.
func (e *Endpoint) Insert(addr string) (Peer, error) {
	at, _ := overCM(addr)
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
		return nil, os.ErrClosed
	}
	if len(e.peers) >= e.opt.MaxPeers {
		e.makeWay()
	}
	if len(e.peers) >= e.opt.MaxPeers {
		return nil, &dmabuf.Error{
			Op: "add a peer", Device: e.nic.Name(), Detail: fmt.Sprintf("there are %d", len(e.peers)),
			Remedy: "raise EndpointOptions.MaxPeers, or Remove some", Err: dmabuf.ErrLimit,
		}
	}
	e.lastPeer++
	p := &peer{id: e.lastPeer, addr: addr}
	e.peers = append(e.peers, p)
	return p, nil
}

// makeWay takes the oldest peer out of the table that is gone for good.
func (e *Endpoint) makeWay() {
	for _, p := range e.peers {
		if p.addr == "" && p.conn != nil && p.conn.over.Load() {
			e.forget(p.id)
			return
		}
	}
}

// find is where in the table a peer is: the numbers ascend.
func (e *Endpoint) find(id Peer) (int, bool) {
	return slices.BinarySearchFunc(e.peers, id, func(p *peer, id Peer) int { return cmp.Compare(p.id, id) })
}

// lookup is the table's entry.
func (e *Endpoint) lookup(id Peer) (*peer, error) {
	if e.closed != nil {
		return nil, os.ErrClosed
	}
	i, ok := e.find(id)
	if !ok {
		return nil, fmt.Errorf("peer %d: %w", id, ErrNotConnected)
	}
	return e.peers[i], nil
}

// forget takes a peer out of the table, unless somebody has. Who goes through the
// table meanwhile has it as it was.
func (e *Endpoint) forget(id Peer) {
	if i, ok := e.find(id); ok {
		e.peers = slices.Concat(e.peers[:i], e.peers[i+1:])
	}
}

// Remove ends the connection to a peer, if there is one, and takes it out of
// the table. What was under way with it completes with an error.
func (e *Endpoint) Remove(id Peer) error {
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
		c.end(errOwnEnd)
		<-c.ended
	}
	return nil
}

// Lost waits until the connection to a peer has ended, and returns why: an error
// that is ErrNotConnected. If ctx ends first, it is ctx's error. A side that only
// lets others read and write its memory, and has no operations that could fail,
// learns of the end by it; nobody needs to Poll. All completions of the connection,
// and what the peer did before the end, are there for Poll then, and the keys that
// the peer was given have been withdrawn.
func (e *Endpoint) Lost(ctx context.Context, id Peer) error {
	e.mu.Lock()
	p, err := e.lookup(id)
	var c *conn
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

// Peers are the peers in the table.
func (e *Endpoint) Peers() []Peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []Peer
	for _, p := range e.peers {
		list = append(list, p.id)
	}
	return list
}
