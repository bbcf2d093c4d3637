// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/refusal"
)

var pageSize = os.Getpagesize()

// evidence is gathered after a dma-buf registration was refused.
type evidence struct {
	route   Route
	errno   unix.Errno
	support dmabufSupport
	probe   unix.Errno // the kernel's answer to the same with fd -1
	buf     bufEvidence

	name     string // the NIC's
	driver   string // of its PCI function
	function string // "" without one
	software bool
	root     bool // the process runs as root

	// attached are the other devices that have the buffer attached. unread is why
	// there may be more.
	attached []string
	unread   error

	machine refusal.Machine
}

// bufEvidence describes the descriptor.
type bufEvidence struct {
	open     bool
	isBuf    bool
	other    bool   // proven to be no dma-buf; neither is set if that could not be told
	what     string // the kind of file, if it is no dma-buf
	size     uint64
	inode    uint64
	exporter string // exp_name, "" if it could not be read
}

func lookAt(fd int) bufEvidence {
	b, err := dmabuf.Import(fd)
	if err == nil {
		defer b.Close()
		ev := bufEvidence{open: true, isBuf: true, size: uint64(b.Size()), inode: b.Inode()}
		if info, err := b.Info(); err == nil {
			ev.exporter = info.Exporter
		}
		return ev
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
	c := pd.ctx
	ev := evidence{
		route: route, errno: n, support: pd.dmabufSupport(), buf: c.lookAt(fd),
		probe: probeErrno(c.file.ProbeDMABufAs(pd.kernelMR(attr, -1))),
		name:  c.name, driver: c.info.Driver, software: c.info.Software(), root: os.Geteuid() == 0, machine: c.machine,
	}
	if c.info.PCI != nil {
		ev.function = c.info.PCI.String()
	}
	if n == unix.EINVAL || n == unix.EBUSY {
		ev.attached, ev.unread = c.attachedElsewhere(ev.buf.inode)
	}
	e := ev.explain(attr)
	e.Device, e.Route, e.Errno = c.name, route, n
	if n == errNoSymbol && ev.noSymbol() {
		e.Errno = unix.EOPNOTSUPP // ENOSYS was ours
	}
	return e
}

// noSymbol: ENOSYS is our own answer, for a libibverbs without the function, and
// not the kernel's.
func (ev *evidence) noSymbol() bool {
	return ev.route == RouteProvider && ev.support.providerErrno == errNoSymbol
}

// explain finds the cause and the stages that the evidence allows.
func (ev *evidence) explain(attr *MRAttr) *RegError {
	e := &RegError{Attr: *attr, Earliest: StageUverbs, Latest: StageDriver}
	if ev.route == RouteProvider {
		e.Earliest = StageProvider
	}
	switch ev.errno {
	case errNoSymbol:
		if ev.noSymbol() {
			return ev.noProviderOp(e, "this libibverbs has no ibv_reg_dmabuf_mr (it came with rdma-core 34)")
		}
	case unix.EOPNOTSUPP:
		return ev.notSupported(e)
	case unix.EPROTONOSUPPORT:
		return ev.noMethod(e)
	case unix.EBADF:
		if !ev.buf.open {
			return e.proven(StageGet, CauseClosedFD, "", "pass an open descriptor")
		}
		e.Cause, e.Detail = CauseUnknown, "the descriptor is open now; when the kernel looked it up, it was closed"
		e.Remedy = "keep the descriptor open, and its number unchanged, until the call is back"
		return ev.narrow(e)
	case unix.EINVAL:
		return ev.invalid(e, attr)
	case unix.ENOMEM:
		return ev.noMemory(e)
	case unix.EPERM, unix.EACCES:
		e.Cause, e.Remedy = CausePermission, permissionRemedy(ev.root)
		e.Detail = ev.asked()
		return ev.narrow(e)
	case unix.EFAULT:
		return ev.fault(e)
	case unix.EIO, unix.ENODEV, unix.ENXIO:
		if ev.probe == ev.errno {
			e.Cause, e.Latest = CauseDeviceGone, StageUverbs
			e.Detail, e.Remedy = "the NIC answers nothing any more, not to descriptor -1 either", "open it again once it is back"
			return e
		}
	case unix.EAGAIN, unix.EINTR:
		e.Cause, e.Detail = CauseUnknown, "the call was interrupted, or the exporter was busy with the buffer"
		e.Remedy = "register again"
		return ev.narrow(e)
	}
	if ev.byExporter(e) {
		return e
	}
	e.Cause = CauseUnknown
	e.Detail = "the kernel answered " + errno.Name(ev.errno)
	if ev.errno == errno.ENOTSUPP {
		e.Cause = CauseKernelENOTSUPP
		e.Detail = ev.exporterName() + ", or the driver of " + ev.nicName() + ", does not support this combination of memory and NIC"
	}
	e.Remedy = seeLog
	return ev.narrow(e)
}

const seeLog = "see the kernel log (dmesg); `dmabuf-reg explain -- COMMAND`, as root, names the function that refused"

// byExporter asks what is known of the exporter's driver. It can have refused if the
// kernel went as far as looking the buffer up.
func (ev *evidence) byExporter(e *RegError) bool {
	if ev.probe != unix.EBADF || !ev.buf.isBuf || beyond(&e.Attr, ev.buf.size) != nil {
		return false
	}
	x := refusal.Evidence{
		Errno: ev.errno, Exporter: ev.buf.exporter, NIC: ev.name, Function: ev.function, Software: ev.software,
		Attached: ev.attached, Unread: ev.unread, Machine: ev.machine,
	}
	found, ok := x.Find()
	if !ok {
		return false
	}
	e.Cause, e.Detail, e.Remedy = causeOf[found.Cause], found.Detail, found.Remedy
	if found.Cause != refusal.Open && found.Cause != refusal.Gone {
		e.Latest = StageMap
	}
	ev.narrow(e)
	return true
}

func (ev *evidence) exporterName() string {
	if ev.buf.exporter == "" {
		return "the exporter"
	}
	return "the exporter (" + ev.buf.exporter + ")"
}

func (ev *evidence) nicName() string {
	if ev.name == "" {
		return "the NIC"
	}
	return ev.name
}

// proven sets a single stage.
func (e *RegError) proven(s Stage, cause Cause, detail, remedy string) *RegError {
	e.Earliest, e.Latest, e.Cause, e.Detail, e.Remedy = s, s, cause, detail, remedy
	return e
}

// asked says whether the refusal is about the buffer.
func (ev *evidence) asked() string {
	switch ev.probe {
	case ev.errno:
		return "the same is refused without a buffer"
	case unix.EBADF:
		return "the NIC's driver takes dma-bufs from this process: the refusal is about this buffer"
	}
	return ""
}

func permissionRemedy(root bool) string {
	if root {
		return "root may not either: see which security module, seccomp filter or device cgroup refuses (dmesg, the audit log)"
	}
	return "run as root, or ask for what a security module or the device cgroup refuses"
}

// noMemory: every stage allocates, so a probe that got further proves nothing.
func (ev *evidence) noMemory(e *RegError) *RegError {
	if ev.probe == unix.ENOMEM {
		e.Latest = StageUverbs
		e.Cause, e.Detail = CauseNoMemory, "also with descriptor -1: the kernel, or the NIC's own tables, and not the buffer"
		e.Remedy = "free memory, or deregister MRs of this NIC"
		return e
	}
	if ev.byExporter(e) {
		return e
	}
	e.Cause, e.Remedy = CauseNoMemory, "free memory, or register less"
	available, err := ev.machine.Proc.MemAvailable()
	const scarce = 64 << 20
	if err != nil || available < scarce || uint64(available) <= e.Attr.Length {
		return e
	}
	e.Detail = fmt.Sprintf("the machine has %#x bytes available, more than the %#x to register", available, e.Attr.Length)
	e.Remedy = "free memory of the GPU, deregister MRs of this NIC, or see the memory cgroup's limit; " + seeLog
	return e
}

// fault: no stage of the kernel's own looks at user memory but for the call's
// arguments, and exporters of user memory do (i915_gem_userptr.c).
func (ev *evidence) fault(e *RegError) *RegError {
	e.Cause, e.Detail = CauseFault, ev.asked()
	e.Remedy = "if the buffer was made from a user pointer, map that memory, writable, for as long as the buffer lives, or use memory of the GPU's own"
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
	if ev.byExporter(e) {
		return e
	}
	e.Cause = CauseUnknown
	e.Detail = "range, IOVA and access are as they must be: " + ev.exporterName() + ", or the driver of " + ev.nicName() + ", refused"
	e.Remedy = seeLog
	return ev.narrow(e)
}

// narrow moves Earliest behind the stages that the fd -1 probe with the same
// parameters has passed: EBADF means that the kernel reached dma_buf_get. A
// descriptor that is a dma-buf passes that too, and a range inside it the size check.
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
