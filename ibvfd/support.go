// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/datadirect"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// dmabufSupport asks once for each context, because a driver's answer does not change.
// Several goroutines may ask at the same time, which does no harm.
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

// DataDirect is the DMA function of the NIC's card, which mlx5's driver has taken for the
// device: a ConnectX-8 or later beside a GPU. has is false if there is none, or if it is not
// known; why says which. DataDirect asks mlx5's library, once for each context.
func (c *Context) DataDirect() (function pciaddr.Addr, has bool, why string) {
	if err := c.enter(); err != nil {
		return pciaddr.Addr{}, false, "the context is closed"
	}
	defer c.leave()
	d := c.dataDirect()
	return d.Function, d.Has, d.Why
}

// dataDirect is DataDirect of a context that is in use.
func (c *Context) dataDirect() *datadirect.Answer {
	d := c.direct.Load()
	if d == nil {
		d = c.askDataDirect()
		c.direct.Store(d)
	}
	return d
}

func (c *Context) askDataDirect() *datadirect.Answer {
	if driver, err := c.file.Identify(); err != nil || driver != uverbs.DriverMLX5 {
		return &datadirect.Answer{Why: "the NIC's driver is not mlx5"}
	}
	a := datadirect.Ask(c.v.DataDirect)
	return &a
}
