// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// checkRefused tries an access that the MR does not allow. It must end in a
// remote access error, and no byte may have moved.
func (s *session) checkRefused(ctx context.Context, p *plan, r registered, c *Case) error {
	if p.closed {
		if err := r.close(); err != nil {
			return err
		}
	}
	pass := s.next()
	window := p.beyond.widen(s.opt.Guard, s.view.Size())
	if err := s.fill(ctx, window, pass.complement()); err != nil {
		return err
	}
	at, n := localAt(p.beyond.off), int(p.beyond.len)
	local := s.wire.src()
	if p.refuse == opRead {
		local = s.wire.dst()
		pass.complement().fill(local[at:at+n], p.beyond.off)
		// The READ must not fetch these bytes.
		if err := s.fill(ctx, p.beyond, pass); err != nil {
			return err
		}
	} else {
		pass.fill(local[at:at+n], p.beyond.off)
	}

	_, err := s.wire.move(ctx, p.refuse, r, p.beyond.off, at, n)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var wc *ibvfd.WCError
	switch {
	case err == nil:
		err = &AcceptedError{Op: p.refuse.String(), Range: p.beyond.String(), MR: p.mr.String()}
	case errors.As(err, &wc) && wc.Status == ibvfd.WCRemAccessErr:
		err = nil
	case errors.As(err, &wc) && (wc.Status == ibvfd.WCRemInvReqErr || wc.Status == ibvfd.WCRemOpErr):
		err = &AcceptedError{Op: p.refuse.String(), Range: p.beyond.String(), MR: p.mr.String(), Err: wc}
	default:
		return err
	}

	before := s.rep.VerifiedBytes
	if p.refuse == opRead {
		d := newComparer("host memory after a refused RDMA READ", pass.complement(), pass)
		d.check(local[at:at+n], p.beyond.off)
		err = errors.Join(err, s.judge(d))
	} else {
		err = errors.Join(err, s.compare(ctx, "the buffer after a refused RDMA WRITE", window, pass.complement(), pass))
	}
	c.Detail = fmt.Sprintf("remote access error, %d bytes untouched", s.rep.VerifiedBytes-before)
	return err
}
