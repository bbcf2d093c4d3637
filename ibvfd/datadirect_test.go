// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
)

// onMover is a scripted device of mlx5's whose NIC has a DMA function, and the memory of an
// exporter.
func onMover(t *testing.T, s *script, driver uint32, exporter string) *PD {
	t.Helper()
	pd := scripted(t, s, &kernel{driver: driver, reg: always(0)})
	pd.ctx.evidence.lookAt = func(int) explain.Buffer {
		return explain.Buffer{Open: true, IsBuf: true, Exporter: exporter, Size: 1 << 20}
	}
	return pd
}

const moverDir = "/sys/devices/pci0008:00/0008:00:00.0/0008:03:00.0"

// Data Direct is chosen for the memory of a GPU of NVIDIA's where mlx5's driver has a DMA
// function for the NIC, and for no other, and the MR says why.
func TestDataDirect(t *testing.T) {
	takes := func(int) error { return nil }
	for _, c := range []struct {
		name, mover, exporter string
		driver                uint32
		attr                  MRAttr
		fail                  error
		want                  Route
		why                   string
	}{
		{"chosen", moverDir, "nv_dmabuf", driverMLX5, MRAttr{}, nil, RouteDataDirect, "the NIC's DMA function 0008:03:00.0 moves the bytes"},
		{"older driver of the GPU", moverDir, "nvidia", driverMLX5, MRAttr{}, nil, RouteDataDirect, "0008:03:00.0"},
		{"provider only", moverDir, "nv_dmabuf", driverMLX5, MRAttr{Policy: RouteProviderOnly}, nil, RouteDataDirect, "0008:03:00.0"},
		{"switched off", moverDir, "nv_dmabuf", driverMLX5, MRAttr{NoDataDirect: true}, nil, RouteProvider, ""},
		{"the ioctl is asked for", moverDir, "nv_dmabuf", driverMLX5, MRAttr{Policy: RouteIoctlOnly}, nil, RouteIoctl, ""},
		{"another vendor's GPU", moverDir, "amdgpu", driverMLX5, MRAttr{}, nil, RouteProvider, ""},
		{"no DMA function", "", "nv_dmabuf", driverMLX5, MRAttr{}, nil, RouteProvider, ""},
		{"no NIC of mlx5's", moverDir, "nv_dmabuf", driverIRDMA, MRAttr{}, nil, RouteProvider, ""},
		{"IOVA within a page", moverDir, "nv_dmabuf", driverMLX5, MRAttr{Offset: 8, IOVA: 8}, nil, RouteProvider, "not by the NIC's DMA function 0008:03:00.0: that takes an IOVA that is aligned to pages"},
		{"refused", moverDir, "nv_dmabuf", driverMLX5, MRAttr{}, unix.EOPNOTSUPP, RouteProvider, "not by the NIC's DMA function 0008:03:00.0: EOPNOTSUPP"},
		{"an answer that is no path", "/sys/devices/nowhere", "nv_dmabuf", driverMLX5, MRAttr{}, nil, RouteProvider, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			s.provider, s.mover = takes, c.mover
			pd := onMover(t, s, c.driver, c.exporter)
			if c.fail != nil {
				s.failWith("regDataDirect", c.fail)
			}
			attr := c.attr
			attr.Kind, attr.FD, attr.Length, attr.SkipChecks = DMABufFD, openFile(t), 4096, true
			mr, err := pd.RegMR(attr)
			if err != nil {
				t.Fatal(err)
			}
			defer mr.Close()
			if mr.Route() != c.want || (c.why == "") != (mr.Why() == "") || !strings.Contains(mr.Why(), c.why) {
				t.Errorf("by %q, because %q; want %q, %q", mr.Route(), mr.Why(), c.want, c.why)
			}
		})
	}
}

// The context asks mlx5's library of a NIC of mlx5's, and of no other.
func TestContextDataDirect(t *testing.T) {
	for _, c := range []struct {
		name, mover string
		driver      uint32
		why         string
	}{
		{"has one", moverDir, driverMLX5, "mlx5's driver has taken 0008:03:00.0"},
		{"has none", "", driverMLX5, "no DMA function"},
		{"another driver", moverDir, driverIRDMA, "is not mlx5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			s.mover = c.mover
			function, has, why := onMover(t, s, c.driver, "nv_dmabuf").Context().DataDirect()
			if has != (c.name == "has one") || has && function.String() != "0008:03:00.0" || !strings.Contains(why, c.why) {
				t.Errorf("%v, %v: %q", function, has, why)
			}
		})
	}
}

// A driver that the kernel did not name is not taken for another than mlx5, and the next call
// asks again.
func TestDataDirectDriverUnknown(t *testing.T) {
	s := newScript()
	s.mover = moverDir
	k := &kernel{driver: 1000, reg: always(0)}
	c := scripted(t, s, k).Context()
	if _, has, why := c.DataDirect(); has || !strings.Contains(why, "not known") || !strings.Contains(why, "EINVAL") {
		t.Errorf("%v: %q", has, why)
	}
	k.driver = driverMLX5
	if function, has, why := c.DataDirect(); !has || function.String() != "0008:03:00.0" {
		t.Errorf("asked again: %v, %v: %q", function, has, why)
	}
}

// A closed context is not asked.
func TestDataDirectClosed(t *testing.T) {
	s := newScript()
	s.mover = moverDir
	pd := onMover(t, s, driverMLX5, "nv_dmabuf")
	c := pd.Context()
	if err := errors.Join(pd.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if _, has, why := c.DataDirect(); has || why != "the context is closed" {
		t.Errorf("%v: %q", has, why)
	}
}

// An MR that is kept from the DMA function stays so when something else changes.
func TestNoDataDirectStays(t *testing.T) {
	s := newScript()
	s.provider, s.mover = func(int) error { return nil }, moverDir
	pd := onMover(t, s, driverMLX5, "nv_dmabuf")
	attr := MRAttr{Kind: DMABufFD, FD: openFile(t), Length: 4096, NoDataDirect: true, SkipChecks: true}
	mr, err := pd.RegMR(attr)
	if err != nil {
		t.Fatal(err)
	}
	defer mr.Close()
	_, next, err := mr.reg().changed(&ReregAttr{Change: ReregAccess, MRAttr: MRAttr{Access: AccessLocalWrite}})
	if err != nil || !next.NoDataDirect {
		t.Errorf("%+v, %v", next, err)
	}
}
