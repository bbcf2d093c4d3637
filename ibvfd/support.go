// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/datadirect"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/errno"
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

// DataDirect returns the PCI function by which the NIC's card reaches the memory of a GPU
// directly, and which mlx5's driver has taken for the device: a ConnectX-8 or later has one. has
// is false if the device has none, or if that is not known: why says which. DataDirect asks
// mlx5's library, and keeps the answer for the context's life.
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
	if d := c.direct.Load(); d != nil {
		return d
	}
	var a datadirect.Answer
	switch driver, err := c.file.Identify(); {
	case err != nil: // and the next call asks again
		return &datadirect.Answer{Why: "the NIC's driver is not known: " + errno.Text(errnoOf(err))}
	case driver != uverbs.DriverMLX5:
		a.Why = "the NIC's driver is not mlx5"
	default:
		a = datadirect.Ask(c.v.DataDirect)
	}
	c.direct.Store(&a)
	return &a
}
