// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// share is memory for which a peer was given keys.
type share struct {
	e     *Endpoint
	conn  *Conn // the keys end with it; nil if they end with the endpoint
	regs  []*rc.Registration
	cores []*core
}

// close withdraws the keys. Keys that cannot be withdrawn stay, with their memory, for the
// next call.
func (s *share) close() error {
	regs, cores := s.regs, s.cores
	s.regs, s.cores = nil, nil
	var err error
	for i, r := range regs {
		if e := r.Close(); e != nil {
			err = joined(err, e)
			s.regs, s.cores = append(s.regs, r), append(s.cores, cores[i])
			continue
		}
		cores[i].unuse()
	}
	return err
}

// Share gives a peer access to local memory. Of a Buffer it shares just the span. A Region
// must be shared as a whole: Share gives access to its buffers, so that the peer may see them
// through other layouts ([RemoteBuffer.View]); if one of them is read-only, only reading can
// be shared. access is any of AccessRemoteRead, AccessRemoteWrite and AccessRemoteAtomic;
// without atomics in the NIC the last one returns EOPNOTSUPP. The peer's writes have the
// Buffer's [Ordering]: share flags as a StrictSlice.
//
// Each Share registers the memory anew: a key that several shares had in common, as from a
// cache of registrations, could not be withdrawn from one of them. The key ends with the
// connection, or with Unshare: from then on the NIC refuses it. With peer 0 the key is for any
// peer, and ends with the endpoint; use it for memory that would otherwise be shared again and
// again.
//
// A key has 32 bits, which drivers do not choose at random, and all peers of a NIC are in one
// protection domain: the NIC lets each of them use any key that it knows or guesses, even one
// that was given to another peer. Peers that must not reach memory shared with others need a
// domain of their own: open the device again, with OpenNIC.
func (e *Endpoint) Share(peer Peer, s Span, access ibvfd.Access) (*RemoteBuffer, error) {
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
func (c *Conn) Share(s Span, access ibvfd.Access) (*RemoteBuffer, error) {
	return c.e.share(c, s, access)
}

func (e *Endpoint) share(c *Conn, s Span, access ibvfd.Access) (_ *RemoteBuffer, err error) {
	if access == 0 || access&^remoteAccess != 0 {
		return nil, &dmabuf.Error{Op: "share", Detail: fmt.Sprintf("access %v", access), Remedy: "remote-read, remote-write, remote-atomic", Err: unix.EINVAL}
	}
	if access&ibvfd.AccessRemoteAtomic != 0 {
		if err := e.nic.atomics("share for atomics"); err != nil {
			return nil, err
		}
	}
	if s.View != nil && (s.Offset != 0 || s.Length != s.View.layout.Size()) {
		return nil, &dmabuf.Error{Op: "share", Detail: "a part of a view", Remedy: "make a view of that part", Err: unix.EINVAL}
	}
	if s.Region != nil && s.Buf == nil && (s.Offset != 0 || s.Length != s.shape().Size()) {
		return nil, &dmabuf.Error{Op: "share", Detail: "a part of a region", Remedy: "assign it a layout of that part, or share slices", Err: unix.EINVAL}
	}
	sh, token := &share{e: e, conn: c}, e.token
	if c != nil {
		token = c.token
	}
	if err := sh.refusal(); err != nil {
		return nil, err
	}
	o, err := s.take(e.nic, OpRemoteWrite, false)
	if err != nil {
		return nil, err
	}
	defer o.drop()
	for _, b := range o.bufs() { // the peer gets keys for all, whatever the layout reaches
		if b.readOnly && access != ibvfd.AccessRemoteRead {
			return nil, b.denied(OpRemoteWrite.String())
		}
	}
	if s.Length == 0 {
		return nil, outOfRange("share", s.Offset, 0, 0)
	}
	if err := o.staged(s.Length, (*stagingBuffer).sync); err != nil {
		return nil, err
	}
	rb := &RemoteBuffer{id: o.bufs()[0].id, token: token, access: access, share: sh}
	have := access
	if access != ibvfd.AccessRemoteRead {
		have |= ibvfd.AccessLocalWrite
	}
	for _, b := range o.bufs() {
		off, n := b.off, b.size
		if s.Buf != nil {
			off, n = b.off+s.Offset, s.Length
		}
		r, err := b.core.share(off, n, have|b.order.access())
		if err != nil {
			return nil, joined(err, e.nic.end(sh.close))
		}
		sh.regs, sh.cores = append(sh.regs, r), append(sh.cores, b.core)
		rb.spaces = append(rb.spaces, lower.NewSpace(r.Remote))
	}
	if s.Buf != nil {
		rb.layout, err = Contiguous(0, s.Length)
		if err != nil {
			return nil, joined(err, e.nic.end(sh.close))
		}
	} else {
		rb.layout = o.Layout
	}
	if err := sh.publish(); err != nil {
		return nil, joined(err, e.nic.end(sh.close))
	}
	return rb, nil
}

// refusal returns the error of a share whose connection or endpoint has ended.
func (s *share) refusal() error {
	if s.conn != nil {
		s.conn.mu.Lock()
		defer s.conn.mu.Unlock()
		return s.conn.refusal()
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed != nil {
		return os.ErrClosed
	}
	return nil
}

// publish registers the share to end with the connection, or with the endpoint. It returns an
// error if that has ended already.
func (s *share) publish() error {
	if c := s.conn; c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.refusal(); err != nil {
			return err
		}
		c.shares[s] = struct{}{}
		return nil
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed != nil {
		return os.ErrClosed
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

// Unshare withdraws the keys that Share gave; rb may be any [RemoteBuffer.View] of Share's
// result. The peer's next access fails, and ends the connection. If a key cannot be withdrawn
// Unshare returns an error, and may be tried again. If the keys are already withdrawn it does
// nothing. For a descriptor that this endpoint's Share did not return, and for any decoded
// descriptor, it returns EINVAL.
func (e *Endpoint) Unshare(rb *RemoteBuffer) error {
	if rb == nil || rb.share == nil || rb.share.e != e {
		return &dmabuf.Error{Op: "unshare", Detail: "this endpoint has not shared it", Remedy: "give what its Share returned, or a View of that", Err: unix.EINVAL}
	}
	sh := rb.share
	if !sh.claim() {
		return nil
	}
	if err := sh.close(); err != nil {
		if sh.publish() != nil { // the connection or endpoint has ended since
			_ = e.nic.end(sh.close)
		}
		return err
	}
	return nil
}
