// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// table is the address table of an endpoint, whose mutex guards it.
type table struct {
	nic    string  // for errors
	most   int     // peers
	closed bool    // the endpoint is closed
	peers  []*peer // in the order of their numbers
	last   operation.Peer
}

// peer is an entry of the address table.
type peer struct {
	id   operation.Peer
	addr string // where to connect on first use; "" if the peer has connected
	conn *Conn  // nil until the first use
}

// insert adds a peer: addr is where to connect on first use; "" if the peer has connected.
func (t *table) insert(addr string) (*peer, error) {
	if t.closed {
		return nil, t.isClosed()
	}
	if len(t.peers) >= t.most {
		t.makeWay()
	}
	if len(t.peers) >= t.most {
		return nil, &failure.Error{
			Op: "add a peer", Device: t.nic, Detail: fmt.Sprintf("there are %d", len(t.peers)),
			Remedy: "raise the number of peers (MaxPeers), or end some", Err: failure.ErrLimit,
		}
	}
	t.last++
	p := &peer{id: t.last, addr: addr}
	t.peers = append(t.peers, p)
	return p, nil
}

// isClosed returns the error of an endpoint that is closed.
func (t *table) isClosed() error { return errs.Closed("endpoint of " + t.nic) }

// makeWay removes the oldest peer whose connection is lost and cannot be made again.
func (t *table) makeWay() {
	if i := slices.IndexFunc(t.peers, (*peer).gone); i >= 0 {
		t.forget(t.peers[i].id)
	}
}

// hasPlace refuses a caller if the table is full.
func (t *table) hasPlace() error {
	if t.closed {
		return t.isClosed()
	}
	if len(t.peers) < t.most || slices.ContainsFunc(t.peers, (*peer).gone) {
		return nil
	}
	return exchange.NewRejection(exchange.TextFull, fmt.Errorf("%w: there are %d peers", failure.ErrLimit, len(t.peers)))
}

// gone reports whether a peer's connection is lost and cannot be made again.
func (p *peer) gone() bool { return p.addr == "" && p.conn != nil && p.conn.Works.Over() }

// find returns the index of a peer in the table.
func (t *table) find(id operation.Peer) (int, bool) {
	return slices.BinarySearchFunc(t.peers, id, func(p *peer, id operation.Peer) int { return cmp.Compare(p.id, id) })
}

// lookup returns a peer's entry.
func (t *table) lookup(id operation.Peer) (*peer, error) {
	if t.closed {
		return nil, t.isClosed()
	}
	i, ok := t.find(id)
	if !ok {
		return nil, fmt.Errorf("peer %d: %w", id, ErrNotConnected)
	}
	return t.peers[i], nil
}

// forget removes a peer from the table, if the table has it. It makes a new slice: a goroutine
// that goes through the table meanwhile keeps the old one.
func (t *table) forget(id operation.Peer) {
	if i, ok := t.find(id); ok {
		t.peers = slices.Concat(t.peers[:i], t.peers[i+1:])
	}
}
