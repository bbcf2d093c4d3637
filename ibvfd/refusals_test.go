// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/internal/errno"
)

// Every errno, by every route: the cause, the stages, and nothing left.
func TestRefusalsByErrno(t *testing.T) {
	both := []RoutePolicy{RouteIoctlOnly, RouteAuto}
	for _, c := range []struct {
		name     string
		kernel   func(fd int32) unix.Errno
		provider func(fd int) error
		policies []RoutePolicy
		errno    unix.Errno
		cause    fault.Cause
		earliest fault.Stage
		latest   fault.Stage
	}{
		{"no driver op", func(int32) unix.Errno { return unix.EOPNOTSUPP }, nil, both, unix.EOPNOTSUPP, fault.CauseNoDriverOp, fault.StageUverbs, fault.StageUverbs},
		{"no method", func(int32) unix.Errno { return unix.EPROTONOSUPPORT }, nil, both, unix.EPROTONOSUPPORT, fault.CauseNoMethod, fault.StageUverbs, fault.StageUverbs},
		{"not this buffer", always(unix.EOPNOTSUPP), nil, both, unix.EOPNOTSUPP, fault.CauseNotSupported, fault.StageGet, fault.StageDriver},
		{"524", always(errno.ENOTSUPP), nil, both, errno.ENOTSUPP, fault.CauseKernelENOTSUPP, fault.StageGet, fault.StageDriver},
		{"permission", always(unix.EPERM), nil, both, unix.EPERM, fault.CausePermission, fault.StageGet, fault.StageDriver},
		{"memory", always(unix.ENOMEM), nil, both, unix.ENOMEM, fault.CauseNoMemory, fault.StageUverbs, fault.StageDriver},
		{"fault", always(unix.EFAULT), nil, both, unix.EFAULT, fault.CauseFault, fault.StageGet, fault.StageDriver},
		{"not a dma-buf", always(unix.EINVAL), nil, both, unix.EINVAL, fault.CauseNotDMABuf, fault.StageGet, fault.StageGet},
		{"driver minds the arguments", func(int32) unix.Errno { return unix.EINVAL }, nil, both, unix.EINVAL, fault.CauseUnknown, fault.StageUverbs, fault.StageUverbs},
		{"device gone", func(int32) unix.Errno { return unix.EIO }, nil, both, unix.EIO, fault.CauseDeviceGone, fault.StageUverbs, fault.StageUverbs},
		{"unknown", always(unix.EXFULL), nil, both, unix.EXFULL, fault.CauseUnknown, fault.StageGet, fault.StageDriver},
		{"no name", always(777), nil, both, 777, fault.CauseUnknown, fault.StageGet, fault.StageDriver},
		{"no provider op", always(0), nil, []RoutePolicy{RouteProviderOnly}, unix.EOPNOTSUPP, fault.CauseNoProviderOp, fault.StageProvider, fault.StageProvider},
		{"old library", always(0), func(int) error { return explain.NoSymbol }, []RoutePolicy{RouteProviderOnly}, unix.EOPNOTSUPP, fault.CauseNoProviderOp, fault.StageProvider, fault.StageProvider},
		{"neither", func(int32) unix.Errno { return unix.EOPNOTSUPP }, nil, []RoutePolicy{RouteProviderOnly}, unix.EOPNOTSUPP, fault.CauseNoDriverOp, fault.StageProvider, fault.StageUverbs},
		{"neither, old kernel", func(int32) unix.Errno { return unix.EPROTONOSUPPORT }, nil, []RoutePolicy{RouteProviderOnly}, unix.EOPNOTSUPP, fault.CauseNoMethod, fault.StageProvider, fault.StageUverbs},
		{
			"provider passes the kernel's on", always(unix.EOPNOTSUPP), func(fd int) error {
				return always(unix.EOPNOTSUPP)(int32(fd))
			}, []RoutePolicy{RouteAuto, RouteProviderOnly}, unix.EOPNOTSUPP, fault.CauseNotSupported, fault.StageGet, fault.StageDriver,
		},
	} {
		for _, policy := range c.policies {
			t.Run(fmt.Sprintf("%s/%d", c.name, policy), func(t *testing.T) {
				s, k := newScript(), &kernel{driver: 14, reg: c.kernel}
				if c.provider != nil {
					s.provider = c.provider
				}
				pd := scripted(t, s, k)
				_, err := pd.RegMR(MRAttr{Kind: DMABufFD, FD: openFile(t), Length: 4096, Access: AccessLocalWrite, Policy: policy, SkipChecks: true})
				var e *RegError
				if !errors.As(err, &e) {
					t.Fatalf("%T %v", err, err)
				}
				if e.Errno != c.errno || e.Cause != c.cause || e.Earliest != c.earliest || e.Latest != c.latest {
					t.Errorf("got %v, %v, %v to %v; want %v, %v, %v to %v\n%v", e.Errno, e.Cause, e.Earliest, e.Latest, c.errno, c.cause, c.earliest, c.latest, err)
				}
				if !errors.Is(err, c.errno) {
					t.Error("the errno cannot be found with errors.Is")
				}
				if e.Remedy == "" && c.cause != fault.CauseFault {
					t.Errorf("no remedy: %v", err)
				}
			})
		}
	}
}

// The ioctl is taken where the provider has no op, and only there.
func TestRoutes(t *testing.T) {
	forward := func(n unix.Errno) func(int) error {
		return func(fd int) error {
			if fd < 0 {
				return unix.EBADF
			}
			if n != 0 {
				return n
			}
			return nil
		}
	}
	for _, c := range []struct {
		name     string
		provider func(int) error
		policy   RoutePolicy
		want     Route
	}{
		{"provider has it", forward(0), RouteAuto, RouteProvider},
		{"provider lacks it", func(int) error { return unix.EOPNOTSUPP }, RouteAuto, RouteIoctl},
		{"library lacks it", func(int) error { return explain.NoSymbol }, RouteAuto, RouteIoctl},
		{"ioctl only", forward(0), RouteIoctlOnly, RouteIoctl},
		{"provider only", forward(0), RouteProviderOnly, RouteProvider},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, k := newScript(), &kernel{driver: 1, reg: always(0)}
			s.provider = c.provider
			pd := scripted(t, s, k)
			for range 2 { // the second time from what the first found out
				mr, err := pd.RegMR(MRAttr{Kind: DMABufFD, FD: openFile(t), Length: 1, Policy: c.policy, SkipChecks: true})
				if err != nil {
					t.Fatal(err)
				}
				if mr.Route() != c.want {
					t.Errorf("route %q, want %q", mr.Route(), c.want)
				}
				if err := mr.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	// A provider that has the op is not bypassed when it refuses.
	s, k := newScript(), &kernel{driver: 1, reg: always(0)}
	s.provider = forward(unix.EOPNOTSUPP)
	pd := scripted(t, s, k)
	if mr, err := pd.RegMR(MRAttr{Kind: DMABufFD, FD: openFile(t), Length: 1, SkipChecks: true}); err == nil {
		t.Errorf("registered by %q past a provider that refused", mr.Route())
		mr.Close()
	}
}

// An MR that cannot be deregistered stays registered, and holds its PD and owner.
func TestFailedDereg(t *testing.T) {
	s, k := newScript(), &kernel{driver: 0, reg: always(0)}
	pd := scripted(t, s, k)
	mem, err := hostmem.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	host, err := pd.RegMR(MRAttr{Kind: HostMemory, Host: mem.Bytes(), Length: 1, Owner: mem})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := pd.RegMR(MRAttr{Kind: DMABufFD, FD: openFile(t), Length: 1, SkipChecks: true})
	if err != nil {
		t.Fatal(err)
	}
	s.failWith("dereg", unix.EBUSY)
	k.destroy = unix.EBUSY
	for _, mr := range []*MR{host, fd} {
		if err := mr.Close(); !errors.Is(err, unix.EBUSY) {
			t.Errorf("Close: %v, want EBUSY", err)
		}
	}
	if err := pd.Close(); err == nil {
		t.Error("the PD closed under MRs that would not deregister")
	}
	if err := mem.Close(); err == nil {
		t.Error("the memory was freed under an MR that would not deregister")
	}
	s.failWith("dereg", nil)
	k.destroy = 0
	for _, x := range []interface{ Close() error }{host, fd, mem} {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Every constructor that fails leaves nothing and names device and errno.
func TestConstructorsFail(t *testing.T) {
	s, k := newScript(), &kernel{reg: always(0)}
	pd := scripted(t, s, k)
	c := pd.Context()
	for fn, call := range map[string]func() error{
		"allocPD":     func() error { _, err := c.AllocPD(); return err },
		"createCQ":    func() error { _, err := c.CreateCQ(1); return err },
		"queryDevice": func() error { _, err := c.QueryDevice(); return err },
		"queryPort":   func() error { _, err := c.QueryPort(1); return err },
	} {
		s.failWith(fn, unix.EMFILE)
		err := call()
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%s: %v, want EMFILE in it", fn, err)
		}
		s.failWith(fn, nil)
	}
	// libibverbs says little when a device does not open; the node says why.
	s.failWith("open", unix.EMFILE)
	if _, err := open(s, "roce0", c.sys, k); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/dev/infiniband/uverbs3") {
		t.Errorf("open: %v, want the missing node in it", err)
	}
	s.failWith("open", fmt.Errorf("%w: %w", ibdev.ErrNoDevice, unix.ENODEV))
	if _, err := open(s, "roce0", c.sys, k); !errors.Is(err, ibdev.ErrNoDevice) || !strings.Contains(err.Error(), "provider") {
		t.Errorf("open: %v, want ErrNoDevice and the provider as remedy", err)
	}
	for _, depth := range []int{0, -1} {
		if _, err := c.CreateCQ(depth); !errors.Is(err, unix.EINVAL) {
			t.Errorf("CreateCQ(%d): %v", depth, err)
		}
	}
	if _, err := c.QueryPort(0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("QueryPort(0): %v", err)
	}
	if _, err := pd.CreateQP(QPAttr{Type: RC}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("CreateQP without CQs: %v", err)
	}
}

func TestHostRefusals(t *testing.T) {
	s, k := newScript(), &kernel{reg: always(0)}
	pd := scripted(t, s, k)
	mem, err := hostmem.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	limit := func(m explain.Memlock) func() explain.Memlock { return func() explain.Memlock { return m } }
	for _, c := range []struct {
		name   string
		errno  unix.Errno
		limits explain.Memlock
		cause  fault.Cause
	}{
		{"over the limit", unix.ENOMEM, explain.Memlock{Limit: 64, Pinned: 0}, fault.CauseMemlock},
		{"pinned already", unix.ENOMEM, explain.Memlock{Limit: 128, Pinned: 64}, fault.CauseMemlock},
		{"exempt", unix.ENOMEM, explain.Memlock{Limit: 64, Exempt: true}, fault.CauseNoMemory},
		{"no limit", unix.ENOMEM, explain.Memlock{Limit: explain.Unlimited, Pinned: explain.Unlimited}, fault.CauseNoMemory},
		{"fault", unix.EFAULT, explain.Memlock{}, fault.CauseFault},
		{"invalid", unix.EINVAL, explain.Memlock{}, fault.CauseUnknown},
		{"no pinning at all", unix.EPERM, explain.Memlock{Limit: 0}, fault.CauseMemlock},
		{"no pinning, exempt", unix.EPERM, explain.Memlock{Limit: 0, Exempt: true}, fault.CausePermission},
		{"some pinning", unix.EPERM, explain.Memlock{Limit: 64}, fault.CausePermission},
		{"permission", unix.EACCES, explain.Memlock{}, fault.CausePermission},
		{"gone", unix.ENODEV, explain.Memlock{}, fault.CauseDeviceGone},
		{"524", errno.ENOTSUPP, explain.Memlock{}, fault.CauseKernelENOTSUPP},
		{"unknown", unix.EXDEV, explain.Memlock{}, fault.CauseUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.failWith("regHost", c.errno)
			pd.ctx.evidence.hostLimits = limit(c.limits)
			_, err := pd.RegMR(MRAttr{Kind: HostMemory, Host: mem.Bytes(), Length: 100, Owner: mem})
			var e *RegError
			if !errors.As(err, &e) || e.Cause != c.cause || e.Errno != c.errno || !errors.Is(err, c.errno) {
				t.Errorf("%v, want cause %v", err, c.cause)
			}
		})
	}
	if m := explain.ReadMemlock(); m.Limit == 0 && !m.Exempt {
		t.Errorf("%+v: nothing could ever be pinned here", m)
	}
	if err := mem.Close(); err != nil {
		t.Errorf("a failed registration holds the memory: %v", err)
	}
}
