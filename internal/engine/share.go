// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// share is memory for which a peer was given keys.
type share struct {
	e    *Endpoint
	conn *Conn // the keys end with it; nil if they end with the endpoint
	keys *memory.Grant
}

// Share gives a peer access to local memory. Of a Buffer it shares only the span. A View must
// be shared as a whole: Share gives access to its buffers, and the peer may use them by other
// layouts (memory.RemoteBuffer.View). If one of them is read-only, only reading can be
// shared. access is any of AccessRemoteRead, AccessRemoteWrite and AccessRemoteAtomic; if the NIC
// has no atomics, Share returns EOPNOTSUPP for the last one. The peer's writes have the Buffer's
// memory.Ordering: share flags as a StrictSlice.
//
// Each Share registers the memory anew: if several shares had one key, as with a cache of
// registrations, the key could not be withdrawn from one of them. The key ends with the
// connection, or with Unshare: from then on the NIC refuses it. With peer 0 the key is for any
// peer, and ends with the endpoint; use it for memory that many peers get.
//
// A key has 32 bits, which drivers do not choose at random, and all peers of a NIC are in one
// protection domain: the NIC lets each of them use any key that it knows or guesses, even one
// that was given to another peer. Peers that must not reach memory shared with others need a
// domain of their own: open the device again, with OpenNIC.
func (e *Endpoint) Share(peer operation.Peer, s memory.Span, access ibvfd.Access) (*memory.RemoteBuffer, error) {
	if peer == 0 {
		return e.share(nil, s, access)
	}
	c, err := e.connFor(peer)
	if err != nil {
		return nil, err
	}
	return e.share(c, s, access)
}

// Share is [Endpoint.Share] with this peer.
func (c *Conn) Share(s memory.Span, access ibvfd.Access) (*memory.RemoteBuffer, error) {
	return c.e.share(c, s, access)
}

// Unshare is [Endpoint.Unshare] of the connection's endpoint.
func (c *Conn) Unshare(rb *memory.RemoteBuffer) error { return c.e.Unshare(rb) }

func (e *Endpoint) share(c *Conn, s memory.Span, access ibvfd.Access) (*memory.RemoteBuffer, error) {
	sh, token := &share{e: e, conn: c}, e.token
	if c != nil {
		token = c.token
	}
	if err := sh.refusal(); err != nil {
		return nil, err
	}
	rb, err := e.nic.Grant(s, access, token)
	if err != nil {
		return nil, err
	}
	sh.keys = rb.Grant()
	sh.keys.Owner = sh
	if err := sh.publish(); err != nil {
		return nil, errs.Join(err, e.nic.End(sh.keys.Withdraw))
	}
	return rb, nil
}

// refusal returns the error of a share whose connection or endpoint has ended.
func (s *share) refusal() error {
	if s.conn != nil {
		return s.conn.Works.End.Refusal()
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed != nil {
		return s.e.isClosed()
	}
	return nil
}

// publish registers the share to end with the connection, or with the endpoint. It returns an
// error if that has ended already.
func (s *share) publish() error {
	if c := s.conn; c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.Works.End.Refusal(); err != nil {
			return err
		}
		if c.shares == nil { // the connection has just ended
			return c.Works.End.Gone()
		}
		c.shares[s] = struct{}{}
		return nil
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed != nil {
		return s.e.isClosed()
	}
	s.e.shares[s] = struct{}{}
	return nil
}

// claim takes a share out of the list of its connection or endpoint; false if it is not in it.
func (s *share) claim() bool {
	mu, all := &s.e.mu, &s.e.shares
	if s.conn != nil {
		mu, all = &s.conn.mu, &s.conn.shares
	}
	mu.Lock()
	defer mu.Unlock()
	if _, ok := (*all)[s]; !ok {
		return false
	}
	delete(*all, s)
	return true
}

// Unshare withdraws the keys that Share gave; rb may be any View of Share's result. The peer's
// next access fails, and ends the connection. If a key cannot be withdrawn Unshare returns an
// error, and may be tried again. If the keys are already withdrawn it does nothing. For a
// descriptor that this endpoint's Share did not return, and for any decoded descriptor, it
// returns EINVAL.
func (e *Endpoint) Unshare(rb *memory.RemoteBuffer) error {
	var sh *share
	if rb != nil && rb.Grant() != nil {
		sh, _ = rb.Grant().Owner.(*share)
	}
	if sh == nil || sh.e != e {
		return &failure.Error{Op: "unshare", Detail: "this endpoint has not shared it", Remedy: "give what its Share returned, or a View of that", Err: unix.EINVAL}
	}
	if !sh.claim() {
		return nil
	}
	if err := sh.keys.Withdraw(); err != nil {
		if sh.publish() != nil { // the connection or endpoint has ended since
			_ = e.nic.End(sh.keys.Withdraw)
		}
		return err
	}
	return nil
}
