// SPDX-License-Identifier: Apache-2.0

package kernelonly

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
)

// Context is a device that f has open.
func Context(f *uverbs.File) libibverbs.Context { return kernelContext{f} }

type kernelContext struct{ f *uverbs.File }

// errKernelOnly is the answer to all that takes a provider.
var errKernelOnly = fmt.Errorf("%w: the device was opened without libibverbs", unix.EOPNOTSUPP)

func (kernelContext) CmdFD() int { return -1 } // not lent
func (kernelContext) QueryDevice() (ibdev.DeviceAttr, error) {
	return ibdev.DeviceAttr{}, errKernelOnly
}
func (kernelContext) QueryPort(int) (ibdev.PortAttr, error)          { return ibdev.PortAttr{}, errKernelOnly }
func (kernelContext) GIDs() ([]ibdev.GID, []int, error)              { return nil, nil, errKernelOnly }
func (kernelContext) CreateCQ(int, int, bool) (libibverbs.CQ, error) { return nil, errKernelOnly }
func (kernelContext) EventFD() (int, error)                          { return -1, errKernelOnly }
func (kernelContext) Event(func(libibverbs.Event)) error             { return errKernelOnly }
func (kernelContext) DataDirect() (string, error)                    { return "", explain.NoSymbol }
func (c kernelContext) Close() error                                 { return c.f.Close() }

func (c kernelContext) AllocPD() (libibverbs.PD, error) {
	handle, err := c.f.AllocPD()
	if err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EFAULT) {
			err = fmt.Errorf("the driver makes no PD without data of its provider: %w", err)
		}
		return nil, err
	}
	return kernelPD{c.f, handle}, nil
}

// kernelPD leaves dma-bufs to the ioctl: with explain.NoSymbol that is the route
// which RouteAuto takes.
type kernelPD struct {
	f *uverbs.File
	h uint32
}

func (p kernelPD) Handle() uint32 { return p.h }
func (p kernelPD) Dealloc() error { return p.f.DeallocPD(p.h) }

func (kernelPD) RegHost(_, _, _ uint64, _ uint32) (libibverbs.MR, error) { return nil, errKernelOnly }

func (kernelPD) RegDMABuf(_, _, _ uint64, _ int, _ uint32) (libibverbs.MR, error) {
	return nil, explain.NoSymbol
}

func (kernelPD) RegDataDirect(_, _, _ uint64, _ int, _ uint32) (libibverbs.MR, error) {
	return nil, explain.NoSymbol
}

func (kernelPD) AllocBuf(int) (libibverbs.Buf, error) { return nil, explain.NoSymbol }

func (kernelPD) RegBuf(libibverbs.Buf, uint64, uint64, uint32) (libibverbs.MR, error) {
	return nil, errKernelOnly
}

func (kernelPD) CreateQP(*libibverbs.QPInit) (libibverbs.QP, error)    { return nil, errKernelOnly }
func (kernelPD) CreateSRQ(*libibverbs.SRQInit) (libibverbs.SRQ, error) { return nil, errKernelOnly }
func (kernelPD) CreateAH(*libibverbs.Path) (libibverbs.AH, error)      { return nil, errKernelOnly }
func (kernelPD) ReplyAH(*libibverbs.WC, []byte, int) (libibverbs.AH, error) {
	return nil, errKernelOnly
}
func (kernelPD) AllocMW(int) (libibverbs.MW, error) { return nil, errKernelOnly }
