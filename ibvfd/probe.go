// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/ibvfd/internal/libibverbs"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/devnode"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/ioctl"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// Answer is yes, no, or not known.
type Answer int

// The answers.
const (
	Unknown Answer = iota // nothing proves it
	Yes                   // it is proven
	No                    // the opposite is proven
)

var answerNames = [...]string{"unknown", "yes", "no"}

// String returns "yes", "no" or "unknown".
func (a Answer) String() string { return enum.Name(answerNames[:], int(a), "Answer") }

// MarshalText makes an Answer a string in JSON.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// answerOf is Unknown if neither is proven.
func answerOf(yes, no bool) Answer {
	switch {
	case yes:
		return Yes
	case no:
		return No
	}
	return Unknown
}

// Support says whether a device registers dma-bufs.
type Support struct {
	DMABufKernel   Answer      `json:"dmabuf_kernel"`    // whether the kernel's driver registers dma-bufs
	DMABufProvider Answer      `json:"dmabuf_provider"`  // whether libibverbs' ibv_reg_dmabuf_mr reaches the driver
	Reason         string      `json:"reason"`           // the ground of the kernel's answer
	ProviderReason string      `json:"provider_reason"`  // the ground of the provider's answer
	Errno          unix.Errno  `json:"errno"`            // the error number with which the kernel answered the probe
	Stage          fault.Stage `json:"stage"`            // the stage of a registration that answered the probe
	Remedy         string      `json:"remedy,omitempty"` // what to change
}

// Probe finds out whether the device of that name registers dma-bufs, by
// asking it to register descriptor -1: a driver that does answers EBADF. It
// registers nothing and changes nothing.
//
// It opens the uverbs node itself, with no part of libibverbs. Where the
// driver does not open a context without vendor data, and for the provider's
// answer, it goes through libibverbs, if this build can load it. An error
// means that there is no such device; whatever could not be found out is
// Unknown, with the reason.
func Probe(name string) (Support, error) {
	return probe(name, sysfs.New(""), ioctl.Kernel, libibverbs.Load)
}

func probe(name string, sys sysfs.FS, t ioctl.Transport, lib func() (libibverbs.Library, error)) (Support, error) {
	info, err := ibdev.Look(sys.Root(), name)
	if err != nil {
		return Support{}, err
	}
	s := probeKernel(info, t, refusal.Machine{Sys: sys})
	v, err := lib()
	if err != nil {
		s.ProviderReason = err.Error()
		return s, nil
	}
	s.throughLibrary(v, name, sys, t)
	return s, nil
}

// probeKernel asks through a context of our own.
func probeKernel(info ibdev.Info, t ioctl.Transport, m refusal.Machine) Support {
	if info.Uverbs == "" {
		return Support{
			Stage: fault.StageUverbs, Errno: unix.ENOENT,
			Reason: "ib_uverbs does not serve this device", Remedy: "modprobe ib_uverbs",
		}
	}
	f, err := uverbs.Open(t, info.Uverbs)
	if err != nil {
		return notOpened(info.Uverbs, err, m)
	}
	defer f.Close()
	pd, err := f.AllocPD()
	if err != nil {
		n := errnoOf(err)
		return Support{Stage: fault.StageUverbs, Errno: n, Reason: "no PD without vendor data: " + errno.Text(n)}
	}
	s := readProbe(f.ProbeDMABuf(pd), info.Driver, m)
	_ = f.DeallocPD(pd) // closing frees it as well
	return s
}

// notOpened is why there is no context of our own.
func notOpened(node string, err error, m refusal.Machine) Support {
	s := Support{Stage: fault.StageUverbs}
	s.Errno, _ = errno.Of(err)
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		detail, remedy := devnode.Explain(node, err, "modprobe ib_uverbs, or let udev make the node")
		s.Reason = fmt.Sprintf("%s cannot be opened: %s", node, errno.Text(s.Errno))
		if detail != "" {
			s.Reason += ": " + detail
		}
		s.Remedy = remedy
		return s
	}
	switch s.Errno {
	case unix.EPROTONOSUPPORT, unix.ENOTTY:
		// GET_CONTEXT by ioctl came with 5.7, REG_DMABUF_MR with 5.12.
		s.DMABufKernel = No
		why, remedy := m.NoMethod()
		s.Reason, s.Remedy = "no GET_CONTEXT by ioctl, which is older than dma-buf registration: "+why, remedy
	default:
		s.Reason = fmt.Sprintf("the driver opens no context without vendor data (%s)", errno.Text(s.Errno))
		s.Remedy = "install libibverbs with the device's provider: it knows the data"
	}
	return s
}

// readProbe reads the kernel's answer to descriptor -1.
func readProbe(err error, driver string, m refusal.Machine) Support {
	n := probeErrno(err)
	s := Support{Errno: n, Stage: fault.StageUverbs}
	switch n {
	case unix.EBADF:
		s.DMABufKernel, s.Stage = Yes, fault.StageGet
		s.Reason = "the driver looked the descriptor -1 up"
	case unix.EOPNOTSUPP:
		s.DMABufKernel = No
		why, remedy := explain.NoDriverOp(driver, m)
		s.Reason, s.Remedy = why+" (EOPNOTSUPP before any descriptor was looked at)", remedy
	case unix.EPROTONOSUPPORT:
		s.DMABufKernel = No
		s.Reason, s.Remedy = m.NoMethod()
	case unix.EPERM, unix.EACCES:
		s.Reason = "not permitted: " + errno.Text(n)
		s.Remedy = explain.PermissionRemedy(os.Geteuid() == 0)
	case 0:
		s.Stage = fault.StageDriver
		s.Reason = "the driver accepted descriptor -1, so the probe tells nothing"
	default:
		s.Reason = "the probe was answered " + errno.Text(n) + ", which tells nothing"
		s.Remedy = "register a buffer to find out"
	}
	return s
}

// throughLibrary asks the provider, and the kernel too if that is still
// unknown, with libibverbs' context.
func (s *Support) throughLibrary(v libibverbs.Library, name string, sys sysfs.FS, t ioctl.Transport) {
	c, err := open(v, name, sys, t)
	if err != nil {
		s.ProviderReason = err.Error()
		return
	}
	defer c.Close()
	pd, err := c.AllocPD()
	if err != nil {
		s.ProviderReason = err.Error()
		return
	}
	defer pd.Close()
	ask := pd.dmabufSupport()
	if s.DMABufKernel == Unknown {
		n := ask.Kernel
		var answer error
		if n != 0 {
			answer = n
		}
		*s = readProbe(answer, c.info.Driver, c.evidence.machine)
	}
	s.DMABufProvider = answerOf(ask.ProviderTakes(), ask.ProviderLacks())
	switch {
	case ask.Provider == explain.NoSymbol:
		s.ProviderReason = v.Version() + " has no ibv_reg_dmabuf_mr (it came with rdma-core 34)"
	case s.DMABufProvider == Yes:
		s.ProviderReason = "ibv_reg_dmabuf_mr reached the driver"
	case s.DMABufProvider == No:
		s.ProviderReason = "the kernel registers dma-bufs for this NIC, and libibverbs' provider does not: ibv_reg_dmabuf_mr answers EOPNOTSUPP before the kernel is asked"
	default:
		s.ProviderReason = "cannot be distinguished from the kernel's own answer"
		if ask.Provider != ask.Kernel {
			s.ProviderReason = "ibv_reg_dmabuf_mr was answered " + errno.Text(ask.Provider)
		}
	}
}
