// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/layout"
)

// Grant is the keys that were made for a RemoteBuffer of this side's memory. It keeps the
// memory until the keys are withdrawn.
type Grant struct {
	Owner any // for the caller that has made the keys

	regs []*rc.Registration
	bufs []*Buffer
}

// Withdraw ends the keys. Keys that cannot be withdrawn stay, with their memory, for the next
// call.
func (g *Grant) Withdraw() error {
	regs, bufs := g.regs, g.bufs
	g.regs, g.bufs = nil, nil
	var err error
	for i, r := range regs {
		if e := bufs[i].core.withdraw(r); e != nil {
			err = errs.Join(err, e)
			g.regs, g.bufs = append(g.regs, r), append(g.bufs, bufs[i])
			continue
		}
		bufs[i].Unuse()
	}
	return err
}

// Grant makes keys for local memory, and its description for the peer. The token names the
// connection, or the endpoint, with which the keys end. Of a Buffer it grants only the span, of a
// View all buffers. The description of memory that the NIC does not reach is Keyless.
func (n *NIC) Grant(s Span, access ibvfd.Access, token uint64) (*RemoteBuffer, error) {
	if err := n.grantable(&s, access); err != nil {
		return nil, err
	}
	const op = "remote write"
	o, err := s.Use(n, op, false)
	if err != nil {
		return nil, err
	}
	defer o.Drop()
	for _, b := range o.bufs() { // the peer gets keys for all of each, whatever bytes the layout takes
		if b.readOnly && access != ibvfd.AccessRemoteRead {
			return nil, b.denied(op)
		}
	}
	if s.Length == 0 {
		return nil, &failure.Error{Op: "share", Device: s.where(), Detail: "0 bytes", Err: failure.ErrRange}
	}
	if _, err := o.Sync(); err != nil {
		return nil, err
	}
	rb := &RemoteBuffer{id: o.bufs()[0].id, token: token, access: access, grant: new(Grant), layout: o.Layout}
	if s.Buf != nil {
		if rb.layout, err = layout.Contiguous(0, s.Length); err != nil {
			return nil, err
		}
	}
	if err := rb.register(&s, o.bufs()); err != nil {
		return nil, errs.Join(err, n.End(rb.grant.Withdraw))
	}
	return rb, nil
}

// grantable refuses a span and an access that a peer cannot get.
func (n *NIC) grantable(s *Span, access ibvfd.Access) error {
	if access == 0 || access&^remoteAccess != 0 {
		return &failure.Error{Op: "share", Detail: fmt.Sprintf("access %v", access), Remedy: "remote-read, remote-write, remote-atomic", Err: unix.EINVAL}
	}
	if access&ibvfd.AccessRemoteAtomic != 0 {
		if err := n.NeedAtomics("share for atomics"); err != nil {
			return err
		}
	}
	if s.View != nil && (s.Offset != 0 || s.Length != s.View.layout.Size()) {
		return &failure.Error{Op: "share", Detail: "a part of a view", Remedy: "make a view of that part", Err: unix.EINVAL}
	}
	return nil
}

// register makes the keys. If the NIC does not reach a buffer, there are none.
func (r *RemoteBuffer) register(s *Span, bufs []*Buffer) error {
	r.keyless, r.moved = s.Missing() != nil, s.Moved()
	have := r.access
	if r.access != ibvfd.AccessRemoteRead {
		have |= ibvfd.AccessLocalWrite
	}
	for _, b := range bufs {
		off, n := b.off, b.size
		if s.Buf != nil {
			off, n = b.off+s.Offset, s.Length
		}
		if r.keyless {
			r.spaces, r.memory = append(r.spaces, keyless(b.core.part(off, n))), append(r.memory, b.core.id)
			continue
		}
		reg, err := b.core.share(off, n, have|b.order.access())
		if err != nil {
			return err
		}
		r.grant.regs, r.grant.bufs = append(r.grant.regs, reg), append(r.grant.bufs, b)
		r.spaces, r.memory = append(r.spaces, lower.NewSpace(reg.Remote)), append(r.memory, b.core.id)
	}
	return nil
}
