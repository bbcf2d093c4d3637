// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
)

// dmabufSupport asks once and remembers: drivers do not learn. Callers that
// come at the same time all ask, which harms nothing.
func (pd *PD) dmabufSupport() explain.Answers {
	if s := pd.ctx.support.Load(); s != nil {
		return *s
	}
	kernel := pd.ctx.file.ProbeDMABuf(pd.handle)
	s := explain.Answers{Provider: pd.probeProvider(), Kernel: probeErrno(kernel)}
	if s.KernelTakes() || s.KernelLacks() {
		pd.ctx.support.Store(&s)
	}
	return s
}

// probeProvider registers a page of fd -1 through libibverbs.
func (pd *PD) probeProvider() unix.Errno {
	v, err := pd.v.RegDMABuf(0, uint64(os.Getpagesize()), 0, -1, uint32(AccessLocalWrite))
	if err == nil {
		_ = v.Dereg()
		return 0
	}
	return errnoOf(err)
}

// onlyIoctl reports whether it is known that the kernel registers dma-bufs and
// the provider does not.
func (c *Context) onlyIoctl() bool {
	s := c.support.Load()
	return s != nil && s.ProviderLacks() && s.KernelTakes()
}
