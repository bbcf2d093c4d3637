// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/internal/holdings"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// evidence has the sources by which a context explains a refusal.
type evidence struct {
	hostLimits func() explain.Memlock // called when a host registration ends in ENOMEM
	machine    refusal.Machine
	lookAt     func(fd int) explain.Buffer
	kernelBufs func(debugfs string) ([]dmabuf.KernelBuf, error)
}

// evidenceOf returns the sources of this machine.
func evidenceOf(sys sysfs.FS) evidence {
	return evidence{explain.ReadMemlock, refusal.Machine{Sys: sys}, explain.LookAt, dmabuf.KernelBufs}
}

// held are the dma-bufs that this process has registered.
var held holdings.Held

// request returns the part of a that the rules check.
func (a *MRAttr) request() explain.Request {
	return explain.Request{Offset: a.Offset, Length: a.Length, IOVA: a.IOVA, Access: uint32(a.Access)}
}

// refuse is the error of our own checks: nothing was called.
func (c *Context) refuse(attr *MRAttr, cause fault.Cause, n unix.Errno, detail, remedy string) *RegError {
	return &RegError{
		Device: c.name, Attr: *attr, Errno: n, Earliest: fault.StageArgs, Latest: fault.StageArgs,
		Cause: cause, Detail: detail, Remedy: remedy,
	}
}

// because adds a sentinel to Unwrap's answer.
func (e *RegError) because(err error) *RegError {
	e.err = err
	return e
}

// broken is the refusal for a rule that attr breaks; nil without one.
func (c *Context) broken(attr *MRAttr, b *explain.Breach) error {
	if b == nil {
		return nil
	}
	return c.refuse(attr, b.Cause, b.Errno, b.Detail, b.Remedy)
}

// refused is the error of a library or a kernel that refused.
func (c *Context) refused(attr *MRAttr, route Route, r *explain.Refusal) *RegError {
	return &RegError{
		Device: c.name, Route: route, Attr: *attr, Errno: r.Errno, Earliest: r.Earliest, Latest: r.Latest,
		Cause: r.Cause, Detail: r.Detail, Remedy: r.Remedy,
	}
}

// explainHost says why ibv_reg_mr refused host memory.
func (c *Context) explainHost(attr *MRAttr, err error) *RegError {
	ask := attr.request()
	return c.refused(attr, RouteHost, explain.Host(&ask, errnoOf(err), c.evidence.hostLimits))
}

// explainDMABuf says why a dma-buf was refused.
func (pd *PD) explainDMABuf(attr *MRAttr, fd int, route Route, n unix.Errno) *RegError {
	c := pd.ctx
	ev := explain.Evidence{
		ByProvider: route == RouteProvider, Errno: n, Support: pd.dmabufSupport(), Buf: c.evidence.lookAt(fd),
		Probe: probeErrno(c.file.ProbeDMABufAs(pd.kernelMR(attr, -1))),
		Name:  c.name, Driver: c.info.Driver, Software: c.info.Software(), Root: os.Geteuid() == 0, Machine: c.evidence.machine,
	}
	if c.info.PCI != nil {
		ev.Function = c.info.PCI.String()
	}
	if n == unix.EINVAL || n == unix.EBUSY {
		ev.Attached, ev.Unread = c.attachedElsewhere(ev.Buf.Inode)
	}
	return c.refused(attr, route, ev.Explain(attr.request()))
}

// attachedElsewhere lists the other devices that have a dma-buf attached: those with
// which this process has registered it, and those in the kernel's list. err is why that
// list could not be read.
func (c *Context) attachedElsewhere(inode uint64) (list []string, err error) {
	if inode == 0 {
		return nil, nil
	}
	list = held.Others(inode, c.name)
	bufs, err := c.evidence.kernelBufs("")
	if err != nil {
		return list, err
	}
	names, own := ibdev.ByFunction(c.sys.Root()), ""
	if c.info.PCI != nil {
		own = c.info.PCI.String()
	}
	for _, b := range bufs {
		if b.Inode != inode {
			continue
		}
		for _, at := range b.Attached {
			if at == own {
				continue
			}
			if names[at] != "" {
				at = names[at]
			}
			if at != c.name && !slices.Contains(list, at) {
				list = append(list, at)
			}
		}
	}
	return list, nil
}
