// SPDX-License-Identifier: Apache-2.0

package ibvfd

import "sync"

// PD is a protection domain: MRs, queue pairs, SRQs, address handles and
// memory windows of one PD work together.
type PD struct {
	parent
	ctx *Context
	v   verbsPD

	handle uint32 // of the kernel's object
	mrs    mrBlocks
	ahs    sync.RWMutex // read-held while work requests that name address handles are posted
}

// Context is the device that the PD belongs to.
func (pd *PD) Context() *Context { return pd.ctx }

// Close frees the PD. It answers [dmabuf.ErrInUse], and frees nothing, while
// MRs, queue pairs or anything else of it is open. Closing again does nothing.
func (pd *PD) Close() error {
	return pd.close("ibv_dealloc_pd", pd.ctx.name, func() error {
		if err := pd.v.dealloc(); err != nil {
			return failed("ibv_dealloc_pd", pd.ctx.name, err)
		}
		pd.ctx.drop(kindPD)
		return nil
	})
}
