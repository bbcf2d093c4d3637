// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"errors"
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// What each refusal must say, by our own checks and by the kernel's answer.
func TestVMRefusals(t *testing.T) {
	pd := openPD(t)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		const size = 1 << 16
		buf := alloc(t, x.Spec, size, gpualloc.Options{})
		seg := segment(t, buf)
		page := uint64(os.Getpagesize())
		devnull, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer devnull.Close()
		closedFD, err := unix.Dup(int(devnull.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(closedFD)

		for _, c := range []struct {
			name     string
			attr     ibvfd.MRAttr
			cause    fault.Cause
			errno    unix.Errno
			earliest fault.Stage // of the kernel's refusal
			latest   fault.Stage
			is       error
		}{
			{"length 0", ibvfd.MRAttr{Buf: seg, Length: 0}, fault.CauseBadRange, unix.EINVAL, fault.StageUverbs, fault.StageDriver, failure.ErrRange},
			{"past the end", ibvfd.MRAttr{Buf: seg, Offset: page, Length: size, IOVA: page}, fault.CauseBadRange, unix.EINVAL, fault.StageGet, fault.StageGet, failure.ErrRange},
			{"offset past the end", ibvfd.MRAttr{Buf: seg, Offset: size + page, Length: 1}, fault.CauseBadRange, unix.EINVAL, fault.StageGet, fault.StageGet, failure.ErrRange},
			{"overflow", ibvfd.MRAttr{Buf: seg, Offset: math.MaxUint64 - page + 1, Length: 2 * page}, fault.CauseBadRange, unix.EINVAL, fault.StageUverbs, fault.StageGet, failure.ErrRange},
			{"IOVA overflow", ibvfd.MRAttr{Buf: seg, Length: page, IOVA: math.MaxUint64 - page + 1}, fault.CauseBadRange, unix.EINVAL, fault.StageUverbs, fault.StageGet, failure.ErrRange},
			{"page offsets differ", ibvfd.MRAttr{Buf: seg, Offset: 8, Length: 8, IOVA: 16}, fault.CauseAlignment, unix.EINVAL, fault.StageUverbs, fault.StageUverbs, nil},
			{"flag not for dma-bufs", ibvfd.MRAttr{Buf: seg, Length: page, Access: ibvfd.AccessLocalWrite | ibvfd.AccessMWBind}, fault.CauseAccess, unix.EINVAL, fault.StageUverbs, fault.StageUverbs, nil},
			{"FLUSH", ibvfd.MRAttr{Buf: seg, Length: page, Access: ibvfd.AccessLocalWrite | ibvfd.AccessFlushGlobal}, fault.CauseAccess, unix.EINVAL, fault.StageUverbs, fault.StageUverbs, nil},
			{"remote without local write", ibvfd.MRAttr{Buf: seg, Length: page, Access: ibvfd.AccessRemoteWrite}, fault.CauseAccess, unix.EINVAL, fault.StageUverbs, fault.StageUverbs, nil},
			{"not a dma-buf", ibvfd.MRAttr{FD: int(devnull.Fd()), Length: page}, fault.CauseNotDMABuf, unix.EINVAL, fault.StageGet, fault.StageGet, dmabuf.ErrNotDMABuf},
			{"closed fd", ibvfd.MRAttr{FD: closedFD, Length: page}, fault.CauseClosedFD, unix.EBADF, fault.StageGet, fault.StageGet, unix.EBADF},
			{"fd -1", ibvfd.MRAttr{FD: -1, Length: page}, fault.CauseClosedFD, unix.EBADF, fault.StageGet, fault.StageGet, unix.EBADF},
		} {
			c.attr.Kind = ibvfd.DMABufFD
			t.Run(c.name+"/ours", func(t *testing.T) {
				_, err := pd.RegMR(c.attr)
				e := asRegError(t, err)
				if e.Cause != c.cause || e.Errno != c.errno || e.Earliest != fault.StageArgs || e.Latest != fault.StageArgs || e.Remedy == "" {
					t.Errorf("%+v\n%v", e, err)
				}
				if c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("errors.Is(%v, %v) is false", err, c.is)
				}
			})
			c.attr.SkipChecks = true
			for _, policy := range []ibvfd.RoutePolicy{ibvfd.RouteAuto, ibvfd.RouteIoctlOnly} {
				c.attr.Policy = policy
				t.Run(c.name+"/kernel", func(t *testing.T) {
					mr, err := pd.RegMR(c.attr)
					if err == nil {
						t.Fatalf("the kernel registered it: %+v", mr.ID())
					}
					e := asRegError(t, err)
					if e.Cause != c.cause || e.Errno != c.errno || e.Earliest < c.earliest || e.Latest > c.latest || e.Remedy == "" {
						t.Errorf("%+v\n%v", e, err)
					}
					t.Log(err)
				})
			}
		}

		seg2, err := seg.Dup()
		if err != nil {
			t.Fatal(err)
		}
		closed(t, seg2)
		_, err = pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: seg2, Length: page})
		if e := asRegError(t, err); e.Cause != fault.CauseClosedFD || !errors.Is(err, os.ErrClosed) {
			t.Errorf("closed Buf: %v", err)
		}
		_, err = pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DevicePointer, Length: page})
		if e := asRegError(t, err); e.Cause != fault.CauseNoPeerClient || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("device pointer: %v", err)
		}
	})
}

// What host registration cannot have.
func TestVMHostRefusals(t *testing.T) {
	pd := openPD(t)
	mem, err := hostmem.Alloc(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mem)
	host := ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem.Bytes(), Length: 1 << 16, Access: allRemote}

	past := host
	past.Offset = 1
	_, err = pd.RegMR(past)
	if e := asRegError(t, err); e.Cause != fault.CauseBadRange || !errors.Is(err, failure.ErrRange) {
		t.Errorf("past the end: %v", err)
	}
	remote := host
	remote.Access, remote.SkipChecks = ibvfd.AccessRemoteWrite, true
	_, err = pd.RegMR(remote)
	if e := asRegError(t, err); e.Cause != fault.CauseAccess || e.Errno != unix.EINVAL {
		t.Errorf("remote without local write: %v", err)
	}

	if _, err := hostmem.Alloc(0); err == nil {
		t.Error("AllocHost(0) succeeded")
	}

	// The mapping of a dma-buf has no struct pages to pin: EFAULT.
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		buf := alloc(t, x.Spec, 1<<16, gpualloc.Options{})
		m, err := segment(t, buf).Map(0, 1<<16, dmabuf.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, m)
		mapped := host
		mapped.Host = m.Bytes()
		mr, err := pd.RegMR(mapped)
		if err == nil {
			t.Errorf("the mapping was pinned, a new thing")
			closed(t, mr)
		} else if e := asRegError(t, err); e.Cause != fault.CauseFault || e.Errno != unix.EFAULT || e.Latest != fault.StagePin {
			t.Errorf("mapping of a dma-buf: %v", err)
		}
	})
}

// The ways to open nothing.
func TestVMOpenErrors(t *testing.T) {
	c := openNIC(t) // that all works otherwise
	if v := ibvfd.Version(); v == "" {
		t.Error("no version")
	}
	if c.Name() != nic || c.Info().Name != nic {
		t.Errorf("%q %+v", c.Name(), c.Info())
	}
	for _, name := range []string{"no-such0", "", "../rxe0"} {
		if _, err := ibvfd.Open(name); !errors.Is(err, ibdev.ErrNoDevice) {
			t.Errorf("Open(%q): %v, want ErrNoDevice", name, err)
		}
		if _, err := ibvfd.Probe(name); !errors.Is(err, ibdev.ErrNoDevice) {
			t.Errorf("Probe(%q): %v, want ErrNoDevice", name, err)
		}
	}
}

// Debian's own rxe has no dma-buf registration: every route says so, and which
// side it is that lacks it.
func TestVMStockHasNoDriverOp(t *testing.T) {
	pd := openPD(t)
	s, err := ibvfd.Probe(nic)
	if err != nil {
		t.Fatal(err)
	}
	if s.DMABufKernel != ibvfd.No || s.Errno != unix.EOPNOTSUPP || s.Stage != fault.StageUverbs || s.Remedy == "" {
		t.Errorf("Probe: %+v", s)
	}
	buf := alloc(t, exporter, 1<<16, gpualloc.Options{})
	for _, policy := range []ibvfd.RoutePolicy{ibvfd.RouteAuto, ibvfd.RouteIoctlOnly, ibvfd.RouteProviderOnly} {
		_, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 16, Access: allRemote, Policy: policy})
		e := asRegError(t, err)
		if e.Cause != fault.CauseNoDriverOp || e.Errno != unix.EOPNOTSUPP || e.Latest != fault.StageUverbs || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("policy %d: %+v\n%v", policy, e, err)
		}
		if policy != ibvfd.RouteProviderOnly && e.Earliest != fault.StageUverbs {
			t.Errorf("the ioctl proves the stage: %+v", e)
		}
		t.Log(err)
	}
}

// On the patched rxe with a provider that lacks the op, asking for the
// provider's route must name the provider.
func TestVMNoProviderOp(t *testing.T) {
	pd := openPD(t)
	s, err := ibvfd.Probe(nic)
	if err != nil {
		t.Fatal(err)
	}
	if s.DMABufKernel != ibvfd.Yes || s.Errno != unix.EBADF || s.Stage != fault.StageGet {
		t.Fatalf("Probe: %+v", s)
	}
	buf := alloc(t, exporter, 1<<16, gpualloc.Options{})
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Length: 1 << 16, Access: allRemote, Policy: ibvfd.RouteProviderOnly})
	if s.DMABufProvider == ibvfd.Yes { // run with the patched rdma-core
		if err != nil {
			t.Fatal(err)
		}
		if mr.Route() != ibvfd.RouteProvider {
			t.Errorf("route %q", mr.Route())
		}
		closed(t, mr)
		return
	}
	e := asRegError(t, err)
	if s.DMABufProvider != ibvfd.No || e.Cause != fault.CauseNoProviderOp || e.Earliest != fault.StageProvider || e.Latest != fault.StageProvider || e.Route != ibvfd.RouteProvider {
		t.Errorf("%+v %+v\n%v", s, e, err)
	}
	t.Log(err)
}
