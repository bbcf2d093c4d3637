// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/errno"
)

var pageSize = os.Getpagesize()

// evidence is what can be found out after a dma-buf registration was refused.
type evidence struct {
	route   Route
	errno   unix.Errno
	support dmabufSupport
	probe   unix.Errno // the kernel's answer to the same with fd -1
	buf     bufEvidence
}

// bufEvidence is what the descriptor is.
type bufEvidence struct {
	open  bool
	isBuf bool
	other bool   // proven to be no dma-buf; neither is set if that could not be told
	what  string // if it is no dma-buf
	size  uint64
}

func lookAt(fd int) bufEvidence {
	b, err := dmabuf.Import(fd)
	if err == nil {
		defer b.Close()
		return bufEvidence{open: true, isBuf: true, size: uint64(b.Size())}
	}
	_, ferr := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	ev := bufEvidence{open: ferr == nil}
	ev.other = errors.Is(err, dmabuf.ErrNotDMABuf)
	if _, e := asFailed(err); e != nil && ev.other {
		ev.what = e.Detail
	}
	return ev
}

func (pd *PD) explainDMABuf(attr *MRAttr, fd int, route Route, n unix.Errno) *RegError {
	ev := evidence{
		route: route, errno: n, support: pd.dmabufSupport(), buf: lookAt(fd),
		probe: probeErrno(pd.ctx.file.ProbeDMABufAs(pd.kernelMR(attr, -1))),
	}
	e := ev.explain(attr)
	e.Device, e.Route, e.Errno = pd.ctx.name, route, n
	if n == errNoSymbol && route == RouteProvider {
		e.Errno = unix.EOPNOTSUPP // ENOSYS was ours
	}
	return e
}

// explain finds the cause and the stages that the evidence allows.
func (ev *evidence) explain(attr *MRAttr) *RegError {
	e := &RegError{Attr: *attr, Earliest: StageUverbs, Latest: StageDriver}
	if ev.route == RouteProvider {
		e.Earliest = StageProvider
	}
	switch ev.errno {
	case errNoSymbol:
		if ev.route == RouteProvider {
			return ev.noProviderOp(e, "this libibverbs has no ibv_reg_dmabuf_mr (it came with rdma-core 34)")
		}
	case unix.EOPNOTSUPP:
		return ev.notSupported(e)
	case unix.EPROTONOSUPPORT:
		if ev.probe == unix.EPROTONOSUPPORT {
			return e.proven(StageUverbs, CauseNoMethod, "this kernel has no REG_DMABUF_MR", "use Linux 5.12 or newer")
		}
	case errno.ENOTSUPP:
		e.Cause = CauseKernelENOTSUPP
		e.Detail = "exporter or driver does not support this combination of memory and NIC"
		e.Remedy = "look at the kernel log; try memory of another kind, or another NIC"
		return ev.narrow(e)
	case unix.EBADF:
		if !ev.buf.open {
			return e.proven(StageGet, CauseClosedFD, "", "pass an open descriptor")
		}
	case unix.EINVAL:
		return ev.invalid(e, attr)
	case unix.ENOMEM:
		// Any stage allocates: that another call got further proves nothing.
		e.Cause, e.Remedy = CauseNoMemory, "free memory, or register less"
		return e
	case unix.EPERM, unix.EACCES:
		e.Cause, e.Remedy = CausePermission, "run as root, or ask for what a security module or the device cgroup refuses"
		return ev.narrow(e)
	case unix.EFAULT:
		e.Cause = CauseFault
		return ev.narrow(e)
	case unix.EIO, unix.ENODEV:
		if ev.probe == ev.errno {
			e.Cause, e.Latest = CauseDeviceGone, StageUverbs
			e.Detail, e.Remedy = "the device answers nothing any more", "open it again once it is back"
			return e
		}
	}
	e.Cause = CauseUnknown
	e.Detail = "the kernel answered " + errno.Name(ev.errno)
	e.Remedy = "look at the kernel log (dmesg)"
	return ev.narrow(e)
}

// proven sets a single stage.
func (e *RegError) proven(s Stage, cause Cause, detail, remedy string) *RegError {
	e.Earliest, e.Latest, e.Cause, e.Detail, e.Remedy = s, s, cause, detail, remedy
	return e
}

func (ev *evidence) noProviderOp(e *RegError, detail string) *RegError {
	remedy := "allow the ioctl route, which asks the kernel directly, or install a newer rdma-core"
	if ev.support.kernel != Yes {
		remedy = "install a newer rdma-core"
	}
	return e.proven(StageProvider, CauseNoProviderOp, detail, remedy)
}

// notSupported tells the meanings of EOPNOTSUPP apart.
func (ev *evidence) notSupported(e *RegError) *RegError {
	s := ev.support
	switch {
	case ev.route == RouteProvider && s.provider == No:
		return ev.noProviderOp(e, "libibverbs' provider for this device has no reg_dmabuf_mr; the kernel has")
	case s.kernelErrno == unix.EPROTONOSUPPORT:
		e.Cause, e.Latest = CauseNoMethod, StageUverbs
		e.Detail, e.Remedy = "this kernel has no REG_DMABUF_MR", "use Linux 5.12 or newer"
		return e
	case s.kernelErrno == unix.EOPNOTSUPP:
		// Also with fd -1: refused before any buffer was looked at.
		e.Cause, e.Latest = CauseNoDriverOp, StageUverbs
		e.Detail = "the kernel's driver does not register dma-bufs"
		e.Remedy = "use a NIC and a kernel whose driver does (mlx5 with CONFIG_INFINIBAND_ON_DEMAND_PAGING, efa, irdma, bnxt_re, mana, ionic)"
		return e
	}
	e.Cause = CauseNotSupported
	e.Detail = "the driver registers dma-bufs, not this one with these parameters"
	e.Remedy = "try memory of another kind, fewer access flags, or another NIC"
	return ev.narrow(e)
}

// invalid tells the meanings of EINVAL apart. The kernel's order is: offset
// against IOVA, access flags, driver's entry, dma_buf_get, size, attach.
func (ev *evidence) invalid(e *RegError, attr *MRAttr) *RegError {
	if ev.probe == unix.EINVAL { // before any buffer was looked at
		for _, f := range []*fault{badAlignment(attr), badDMABufAccess(attr.Access), badRemoteAccess(attr.Access)} {
			if f != nil {
				return e.proven(StageUverbs, f.cause, f.detail, f.remedy)
			}
		}
		if f := badLength(attr); f != nil {
			e.Earliest, e.Latest, e.Cause, e.Detail, e.Remedy = StageUverbs, StageGet, f.cause, f.detail, f.remedy
			return e
		}
		return e.proven(StageUverbs, CauseUnknown, "refused before the buffer was looked at: the driver minds length, IOVA or flags", "see the driver's limits (max_mr_size) and the kernel log")
	}
	switch {
	case ev.buf.other:
		return e.proven(StageGet, CauseNotDMABuf, ev.buf.what, "export the memory as a dma-buf and pass that descriptor")
	case ev.buf.isBuf:
		if f := beyond(attr, ev.buf.size); f != nil && ev.probe == unix.EBADF {
			return e.proven(StageGet, f.cause, f.detail, f.remedy)
		}
		if f := badLength(attr); f != nil {
			e.Cause, e.Detail, e.Remedy = f.cause, f.detail, f.remedy
			return ev.narrow(e)
		}
	}
	e.Cause = CauseUnknown
	e.Detail = "range, IOVA and access are as they must be"
	e.Remedy = "exporter and driver did not come together: look at the kernel log (dmesg)"
	return ev.narrow(e)
}

// narrow moves Earliest behind what the fd -1 probe with the same parameters
// has passed: EBADF means that dma_buf_get was reached. A descriptor that is a
// dma-buf passes that too, and a range inside it the size check.
func (ev *evidence) narrow(e *RegError) *RegError {
	if ev.probe != unix.EBADF {
		return e
	}
	e.Earliest = max(e.Earliest, StageGet)
	if ev.buf.isBuf && beyond(&e.Attr, ev.buf.size) == nil {
		e.Earliest = StageAttach
	}
	return e
}

// explainDereg says why an MR stayed registered.
func (r *registration) explainDereg(op string, err error) error {
	e := failed(op, r.pd.ctx.name, errnoOf(err))
	e.Detail = fmt.Sprintf("MR with lkey %#x stays registered", r.made.lkey)
	if errors.Is(err, unix.EBUSY) {
		e.Remedy = "deallocate the memory windows bound to it first"
	}
	return e
}
