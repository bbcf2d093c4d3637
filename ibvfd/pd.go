// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/internal/hostbufs"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
)

// PD is a protection domain. A queue pair reaches MRs, SRQs, address handles and memory windows of
// its own PD only.
type PD struct {
	parent
	ctx *Context
	v   libibverbs.PD

	handle uint32 // of the kernel's object
	mrs    mrBlocks
	ahs    sync.RWMutex // read-held while work requests that name address handles are posted

	bufs   hostbufs.List // of AllocHost
	leftMu sync.Mutex
	left   []*MR // that Discard could not deregister
}

// AllocPD allocates a protection domain. The caller closes it after everything that was made from
// it, and before the Context.
func (c *Context) AllocPD() (*PD, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	v, err := c.v.AllocPD()
	if err != nil {
		return nil, failed("ibv_alloc_pd", c.name, err)
	}
	c.hold(kindPD)
	return &PD{ctx: c, v: v, handle: v.Handle()}, nil
}

// Context returns the device that the PD belongs to.
func (pd *PD) Context() *Context { return pd.ctx }

// AllocHost allocates size bytes of zeroed host memory for MRs of this PD. If libibverbs and the
// provider have ibv_alloc_buf (rdma-core 64), the provider chooses the memory: in a confidential
// guest a NIC reaches only some of it. Otherwise [hostmem.Alloc] does. The caller closes the memory.
// The PD stays in use until then.
func (pd *PD) AllocHost(size int) (*hostmem.Buf, error) {
	page := os.Getpagesize()
	if size <= 0 || size > int(^uint(0)>>1)-page {
		return hostmem.Alloc(size) // which says what is wrong
	}
	if err := pd.join(kindBuf); err != nil {
		return nil, err
	}
	b, err := pd.v.AllocBuf((size + page - 1) / page * page)
	if errors.Is(err, explain.NoSymbol) || errors.Is(err, unix.EOPNOTSUPP) {
		pd.drop(kindBuf)
		return hostmem.Alloc(size)
	}
	if err != nil {
		pd.drop(kindBuf)
		return nil, failed("ibv_alloc_buf", pd.ctx.name, errnoOf(err))
	}
	clear(b.Bytes())
	pd.bufs.Add(b)
	free := func() {
		pd.bufs.Remove(b)
		b.Free()
		pd.drop(kindBuf)
	}
	buf, err := hostmem.Adopt(b.Bytes(), size, free)
	if err != nil {
		free()
	}
	return buf, err
}

// Close frees the PD. While anything that was made from it is open, Close frees nothing and answers
// [failure.ErrInUse]. It first tries again to deregister the MRs that [PD.Discard] could not
// deregister. Closing again does nothing.
func (pd *PD) Close() error {
	left := pd.Discard()
	err := pd.close("ibv_dealloc_pd", pd.ctx.name, func() error {
		if err := pd.v.Dealloc(); err != nil {
			return failed("ibv_dealloc_pd", pd.ctx.name, err)
		}
		pd.ctx.drop(kindPD)
		return nil
	})
	if left != nil {
		err = errors.Join(left, err)
	}
	return err
}

// Discard closes MRs of the PD that no other code uses, and returns the errors joined. An MR that
// cannot be deregistered stays with the PD: the next Discard, and Close, try again.
func (pd *PD) Discard(mrs ...*MR) (err error) {
	pd.leftMu.Lock()
	defer pd.leftMu.Unlock()
	pd.left, err = CloseAll(append(pd.left, mrs...))
	return err
}
