// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/region"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/placement"
)

// register registers the buffer, and finds the memory that has its bytes. It moves no bytes, because
// without libibverbs it cannot post and poll.
func (c *climb) register(ctx context.Context, nic *ibvfd.Context) {
	if c.tracer != nil {
		c.tracer.Pending() // drop earlier refusals
	}
	made, err := c.registered(nic, func(mr *ibvfd.MR) {
		c.step(p2p.RungRegister, p2p.ResultPass, "by the %s", mr.Route())
		c.recount()
		c.place(ctx, placement.Key{Device: nic.Name(), LKey: mr.LKey(), Inode: c.inode})
		for _, r := range []p2p.Rung{p2p.RungWrite, p2p.RungRead, p2p.RungOrder} {
			c.step(r, p2p.ResultSkip, "not moved: %v", c.still)
		}
	})
	switch {
	case err == nil:
	case made:
		c.proof.Outcome = chain.OutcomeUnknown
		c.open(p2p.RungRegister, p2p.ResultFail, fmt.Errorf("the registration could not be closed: %w", err))
	default:
		c.unregistered(ctx, err)
	}
}

// registered registers the buffer, and calls show with the MR while the MR exists. If the buffer has several
// segments, show gets the MR of the first one. made reports whether there was an MR.
func (c *climb) registered(nic *ibvfd.Context, show func(*ibvfd.MR)) (made bool, err error) {
	pd, err := nic.AllocPD()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, pd.Close()) }()
	attr := region.Attr{
		Length: uint64(c.buf.Size()), Owner: c.buf,
		Access: ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite,
	}
	for _, s := range c.buf.Segments() {
		attr.Segments = append(attr.Segments, region.Segment{Buf: s.Buf, Offset: uint64(s.Offset), Length: uint64(s.Size)})
	}
	// If the memory does not start at a page boundary, the address needs the same offset.
	attr.IOVA = attr.Segments[0].Offset % uint64(os.Getpagesize())
	region, err := region.Register(attr, pd)
	if err != nil {
		return false, err
	}
	show(region.MRs(pd)[0])
	return true, region.Close()
}
