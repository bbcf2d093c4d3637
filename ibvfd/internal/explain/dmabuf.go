// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/refusal"
)

var pageSize = os.Getpagesize()

// Refusal is what the evidence says of a registration that was refused.
type Refusal struct {
	Errno            unix.Errno
	Earliest, Latest fault.Stage
	Cause            fault.Cause
	Detail, Remedy   string

	ask Request
}

// Evidence is gathered after a dma-buf registration was refused.
type Evidence struct {
	ByProvider bool // libibverbs was asked, not the kernel
	Errno      unix.Errno
	Support    Answers
	Probe      unix.Errno // the kernel's answer to the same with fd -1
	Buf        Buffer

	Name     string // the NIC's
	Driver   string // of its PCI function
	Function string // "" without one
	Software bool
	Root     bool // the process runs as root

	// Attached are the other devices that have the buffer attached. Unread is why
	// there may be more.
	Attached []string
	Unread   error

	Machine refusal.Machine
}

// Buffer describes the descriptor.
type Buffer struct {
	Open     bool
	IsBuf    bool
	Other    bool   // proven to be no dma-buf; neither IsBuf nor Other is set if that is not known
	What     string // the kind of file, if it is no dma-buf
	Size     uint64
	Inode    uint64
	Exporter string // exp_name, "" if it could not be read
}

// noSymbol: ENOSYS is our own answer, for a libibverbs without the function, and
// not the kernel's.
func (ev *Evidence) noSymbol() bool {
	return ev.ByProvider && ev.Support.Provider == NoSymbol
}

// Explain finds the cause and the stages that the evidence allows.
func (ev *Evidence) Explain(ask Request) *Refusal {
	e := ev.explain(&ask)
	e.Errno = ev.Errno
	if ev.Errno == NoSymbol && ev.noSymbol() {
		e.Errno = unix.EOPNOTSUPP // this process made the ENOSYS, not the kernel
	}
	return e
}

func (ev *Evidence) explain(attr *Request) *Refusal {
	e := &Refusal{ask: *attr, Earliest: fault.StageUverbs, Latest: fault.StageDriver}
	if ev.ByProvider {
		e.Earliest = fault.StageProvider
	}
	switch ev.Errno {
	case NoSymbol:
		if ev.noSymbol() {
			return ev.noProviderOp(e, "this libibverbs has no ibv_reg_dmabuf_mr (it came with rdma-core 34)")
		}
	case unix.EOPNOTSUPP:
		return ev.notSupported(e)
	case unix.EPROTONOSUPPORT:
		return ev.noMethod(e)
	case unix.EBADF:
		if !ev.Buf.Open {
			return e.proven(fault.StageGet, fault.CauseClosedFD, "", "pass an open descriptor")
		}
		e.Cause, e.Detail = fault.CauseUnknown, "the descriptor is open now; when the kernel looked it up, it was closed"
		e.Remedy = "keep the descriptor open, and its number unchanged, until the call is back"
		return ev.narrow(e)
	case unix.EINVAL:
		return ev.invalid(e, attr)
	case unix.ENOMEM:
		return ev.noMemory(e)
	case unix.EPERM, unix.EACCES:
		e.Cause, e.Remedy = fault.CausePermission, PermissionRemedy(ev.Root)
		e.Detail = ev.asked()
		return ev.narrow(e)
	case unix.EFAULT:
		return ev.fault(e)
	case unix.EIO, unix.ENODEV, unix.ENXIO:
		if ev.Probe == ev.Errno {
			e.Cause, e.Latest = fault.CauseDeviceGone, fault.StageUverbs
			e.Detail, e.Remedy = "the NIC answers nothing any more, not to descriptor -1 either", "open it again once it is back"
			return e
		}
	case unix.EAGAIN, unix.EINTR:
		e.Cause, e.Detail = fault.CauseUnknown, "the call was interrupted, or the exporter was busy with the buffer"
		e.Remedy = "register again"
		return ev.narrow(e)
	}
	if ev.byExporter(e) {
		return e
	}
	e.Cause = fault.CauseUnknown
	e.Detail = "the kernel answered " + errno.Name(ev.Errno)
	if ev.Errno == errno.ENOTSUPP {
		e.Cause = fault.CauseKernelENOTSUPP
		e.Detail = ev.exporterName() + ", or the driver of " + ev.nicName() + ", does not support this combination of memory and NIC"
	}
	e.Remedy = seeLog
	return ev.narrow(e)
}

const seeLog = "see the kernel log (dmesg); `dmabuf-reg explain -- COMMAND`, as root, names the function that refused"

// byExporter asks what is known of the exporter's driver. It can have refused if the
// kernel went as far as looking the buffer up.
func (ev *Evidence) byExporter(e *Refusal) bool {
	if ev.Probe != unix.EBADF || !ev.Buf.IsBuf || Beyond(&e.ask, ev.Buf.Size) != nil {
		return false
	}
	x := refusal.Evidence{
		Errno: ev.Errno, Exporter: ev.Buf.Exporter, NIC: ev.Name, Function: ev.Function, Software: ev.Software,
		Attached: ev.Attached, Unread: ev.Unread, Machine: ev.Machine,
	}
	found, ok := x.Find()
	if !ok {
		return false
	}
	e.Cause, e.Detail, e.Remedy = causeOf[found.Cause], found.Detail, found.Remedy
	if found.Cause != refusal.Open && found.Cause != refusal.Gone {
		e.Latest = fault.StageMap
	}
	ev.narrow(e)
	return true
}

func (ev *Evidence) exporterName() string {
	if ev.Buf.Exporter == "" {
		return "the exporter"
	}
	return "the exporter (" + ev.Buf.Exporter + ")"
}

func (ev *Evidence) nicName() string {
	if ev.Name == "" {
		return "the NIC"
	}
	return ev.Name
}

// proven sets a single stage.
func (e *Refusal) proven(s fault.Stage, cause fault.Cause, detail, remedy string) *Refusal {
	e.Earliest, e.Latest, e.Cause, e.Detail, e.Remedy = s, s, cause, detail, remedy
	return e
}

// asked says whether the refusal is about the buffer.
func (ev *Evidence) asked() string {
	switch ev.Probe {
	case ev.Errno:
		return "the same is refused without a buffer"
	case unix.EBADF:
		return "the NIC's driver takes dma-bufs from this process: the refusal is about this buffer"
	}
	return ""
}

// PermissionRemedy is what lets a process do what was not permitted.
func PermissionRemedy(root bool) string {
	if root {
		return "root may not either: see which security module, seccomp filter or device cgroup refuses (dmesg, the audit log)"
	}
	return "run as root, or ask for what a security module or the device cgroup refuses"
}

// noMemory: every stage allocates, so a probe that got further proves nothing.
func (ev *Evidence) noMemory(e *Refusal) *Refusal {
	if ev.Probe == unix.ENOMEM {
		e.Latest = fault.StageUverbs
		e.Cause, e.Detail = fault.CauseNoMemory, "also with descriptor -1: the kernel, or the NIC's own tables, and not the buffer"
		e.Remedy = "free memory, or deregister MRs of this NIC"
		return e
	}
	if ev.byExporter(e) {
		return e
	}
	e.Cause, e.Remedy = fault.CauseNoMemory, "free memory, or register less"
	available, err := ev.Machine.Proc.MemAvailable()
	const scarce = 64 << 20
	if err != nil || available < scarce || uint64(available) <= e.ask.Length {
		return e
	}
	e.Detail = fmt.Sprintf("the machine has %#x bytes available, more than the %#x to register", available, e.ask.Length)
	e.Remedy = "free memory of the GPU, deregister MRs of this NIC, or see the memory cgroup's limit; " + seeLog
	return e
}

// fault: no stage of the kernel's own looks at user memory but for the call's
// arguments, and exporters of user memory do (i915_gem_userptr.c).
func (ev *Evidence) fault(e *Refusal) *Refusal {
	e.Cause, e.Detail = fault.CauseFault, ev.asked()
	e.Remedy = "if the buffer was made from a user pointer, map that memory, writable, for as long as the buffer lives, or use memory of the GPU's own"
	return ev.narrow(e)
}

// invalid tells the meanings of EINVAL apart. The kernel's order is: offset
// against IOVA, access flags, driver's entry, dma_buf_get, size, attach.
func (ev *Evidence) invalid(e *Refusal, attr *Request) *Refusal {
	if ev.Probe == unix.EINVAL { // before any buffer was looked at
		for _, f := range []*Breach{badAlignment(attr), BadDMABufAccess(attr.Access), BadRemoteAccess(attr.Access)} {
			if f != nil {
				return e.proven(fault.StageUverbs, f.Cause, f.Detail, f.Remedy)
			}
		}
		if f := BadLength(attr); f != nil {
			e.Earliest, e.Latest, e.Cause, e.Detail, e.Remedy = fault.StageUverbs, fault.StageGet, f.Cause, f.Detail, f.Remedy
			return e
		}
		return e.proven(fault.StageUverbs, fault.CauseUnknown, "refused before the buffer was looked at: the driver minds length, IOVA or flags", "see the driver's limits (max_mr_size) and the kernel log")
	}
	switch {
	case ev.Buf.Other:
		return e.proven(fault.StageGet, fault.CauseNotDMABuf, ev.Buf.What, "export the memory as a dma-buf and pass that descriptor")
	case ev.Buf.IsBuf:
		if f := Beyond(attr, ev.Buf.Size); f != nil && ev.Probe == unix.EBADF {
			return e.proven(fault.StageGet, f.Cause, f.Detail, f.Remedy)
		}
		if f := BadLength(attr); f != nil {
			e.Cause, e.Detail, e.Remedy = f.Cause, f.Detail, f.Remedy
			return ev.narrow(e)
		}
	}
	if ev.byExporter(e) {
		return e
	}
	e.Cause = fault.CauseUnknown
	e.Detail = "range, IOVA and access are as they must be: " + ev.exporterName() + ", or the driver of " + ev.nicName() + ", refused"
	e.Remedy = seeLog
	return ev.narrow(e)
}

// narrow moves Earliest behind the stages that the fd -1 probe with the same
// parameters has passed: EBADF means that the kernel reached dma_buf_get. A
// descriptor that is a dma-buf passes that too, and a range inside it the size check.
func (ev *Evidence) narrow(e *Refusal) *Refusal {
	if ev.Probe != unix.EBADF {
		return e
	}
	e.Earliest = max(e.Earliest, fault.StageGet)
	if ev.Buf.IsBuf && Beyond(&e.ask, ev.Buf.Size) == nil {
		e.Earliest = fault.StageAttach
	}
	return e
}

// causeOf are the causes that the rules of exporters pick.
var causeOf = map[refusal.Cause]fault.Cause{
	refusal.Open: fault.CauseUnknown, refusal.VideoMemory: fault.CauseVideoMemory, refusal.NoAddresses: fault.CauseNoAddresses, refusal.Gate: fault.CauseGate,
	refusal.Pinned: fault.CausePinned, refusal.Gone: fault.CauseGone, refusal.Unreachable: fault.CauseUnreachable, refusal.NotForIt: fault.CauseNotSupported,
}

// LookAt finds out what a descriptor is.
func LookAt(fd int) Buffer {
	b, err := dmabuf.Import(fd)
	if err == nil {
		defer b.Close()
		ev := Buffer{Open: true, IsBuf: true, Size: uint64(b.Size()), Inode: b.Inode()}
		if info, err := b.Info(); err == nil {
			ev.Exporter = info.Exporter
		}
		return ev
	}
	_, ferr := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	ev := Buffer{Open: ferr == nil}
	ev.Other = errors.Is(err, dmabuf.ErrNotDMABuf)
	if e := (*failure.Error)(nil); ev.Other && errors.As(err, &e) {
		ev.What = e.Detail
	}
	return ev
}
