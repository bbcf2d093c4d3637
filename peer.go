// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// Peer is an entry of an endpoint's address table (fi_addr_t). The zero Peer is
// none. A Peer that was removed is never another's.
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
	if e.closed {
		return nil, os.ErrClosed
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

// find is where in the table a peer is: the numbers ascend.
func (e *Endpoint) find(id Peer) (int, bool) {
	return slices.BinarySearchFunc(e.peers, id, func(p *peer, id Peer) int { return cmp.Compare(p.id, id) })
}

// lookup is the table's entry.
func (e *Endpoint) lookup(id Peer) (*peer, error) {
	if e.closed {
		return nil, os.ErrClosed
	}
	i, ok := e.find(id)
	if !ok {
		return nil, fmt.Errorf("peer %d: %w", id, ErrNotConnected)
	}
	return e.peers[i], nil
}

// forget takes a peer out of the table, unless somebody has.
func (e *Endpoint) forget(p *peer) {
	if i, ok := e.find(p.id); ok {
		e.peers = slices.Delete(e.peers, i, i+1)
	}
}

// Remove ends the connection to a peer, if there is one, and takes it out of
// the table. What was under way with it completes with an error.
func (e *Endpoint) Remove(id Peer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := e.lookup(id)
	if err != nil {
		return err
	}
	if p.conn != nil {
		p.conn.abort(fmt.Errorf("%w: removed", ErrNotConnected))
	}
	e.forget(p)
	return nil
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
