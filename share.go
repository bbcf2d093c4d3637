// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
)

// share is memory that a peer was given keys to.
type share struct {
	e     *Endpoint
	conn  *conn // whose end is the keys'; nil if it is the endpoint's
	regs  []*registration
	cores []*core
}

// close withdraws the keys. Those that cannot be withdrawn stay, with their
// memory, for the next time.
func (s *share) close() error {
	regs, cores := s.regs, s.cores
	s.regs, s.cores = nil, nil
	var err error
	for i, r := range regs {
		if e := r.close(); e != nil {
			err = joined(err, e)
			s.regs, s.cores = append(s.regs, r), append(s.cores, cores[i])
			continue
		}
		cores[i].unuse()
	}
	return err
}

// Share gives a peer access to local memory: of a Buffer, to just the span; of a
// Region, which must be shared as a whole, to its buffers, so that the peer may
// see them through other layouts ([RemoteBuffer.View]): with one that is read-only,
// for reading alone. access is any of
// AccessRemoteRead, AccessRemoteWrite and AccessRemoteAtomic, the last of which a NIC
// without atomics refuses with EOPNOTSUPP. What the peer
// writes has the Buffer's [Ordering]: share flags as a StrictSlice.
//
// The memory is registered for this purpose alone, anew each time: a key that
// several shares had, such as a cache of registrations gives out,
// could not be withdrawn from one of them. The key ends with the
// connection, or with Unshare: the NIC refuses it then, whatever its holder
// claims. Who shares the same memory again and again does so once with peer 0,
// whose key stays. With peer 0 it is for any peer, and ends with the endpoint.
//
// A key is 32 bits, which drivers do not choose by chance, and all peers of a
// NIC are in one protection domain: its hardware lets any of them use a key that
// it knows or guesses, whoever it was given to. For peers that must not reach
// what is shared with others there is a domain of its own: open the device
// again, with OpenNIC.
func (e *Endpoint) Share(peer Peer, s Span, access ibvfd.Access) (_ *RemoteBuffer, err error) {
	if access == 0 || access&^remoteAccess != 0 {
		return nil, &dmabuf.Error{Op: "share", Detail: fmt.Sprintf("access %v", access), Remedy: "remote-read, remote-write, remote-atomic", Err: unix.EINVAL}
	}
	if access&ibvfd.AccessRemoteAtomic != 0 {
		if err := e.nic.atomics("share for atomics"); err != nil {
			return nil, err
		}
	}
	if s.Region != nil && s.Buf == nil && (s.Offset != 0 || s.Length != s.shape().Size()) {
		return nil, &dmabuf.Error{Op: "share", Detail: "a part of a region", Remedy: "assign it a layout of that part, or share slices", Err: unix.EINVAL}
	}
	sh, token := &share{e: e}, e.token
	if peer != 0 {
		c, err := e.connFor(peer)
		if err != nil {
			return nil, err
		}
		sh.conn, token = c, c.token
	}
	if err := sh.refusal(); err != nil {
		return nil, err
	}
	o, err := s.take(e.nic, OpRemoteWrite, false)
	if err != nil {
		return nil, err
	}
	defer o.drop()
	for _, b := range o.bufs() { // keys are given to all, whatever the layout reaches
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
		rb.spaces = append(rb.spaces, lower.NewSpace(r.remote))
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

// refusal is why nothing can be shared with the peer any more.
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

// publish has the keys end with the connection, or with the endpoint; an error says that this has
// ended already.
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

// claim takes a share away from what it would end with; false if somebody has.
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

// Unshare withdraws what Share gave, by any [RemoteBuffer.View] of it: the peer's
// next access fails, and ends the connection. A key that cannot be withdrawn is an
// error; Unshare may be tried again. What has been withdrawn is left alone; what
// this endpoint has not shared is EINVAL, a descriptor that was decoded too, whoever
// encoded it.
func (e *Endpoint) Unshare(rb *RemoteBuffer) error {
	if rb == nil || rb.share == nil || rb.share.e != e {
		return &dmabuf.Error{Op: "unshare", Detail: "this endpoint has not shared it", Remedy: "give what its Share returned, or a View of that", Err: unix.EINVAL}
	}
	sh := rb.share
	if !sh.claim() {
		return nil
	}
	if err := sh.close(); err != nil {
		if sh.publish() != nil { // it was to end by now
			_ = e.nic.end(sh.close)
		}
		return err
	}
	return nil
}
