// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/ibvfd/internal/explain"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// machine is a machine of these files, below "sys" and "proc". A text that begins
// with "-> " is a symbolic link.
func machine(t *testing.T, files map[string]string) refusal.Machine {
	t.Helper()
	lines := map[string]string{}
	for name, text := range files {
		lines[name] = text + "\n"
	}
	root := testenv.Files(t, lines)
	return refusal.Machine{Sys: sysfs.New(filepath.Join(root, "sys")), Proc: procfs.New(filepath.Join(root, "proc"))}
}

// A buffer that one NIC has pinned, and another NIC that is refused. The evidence is
// this process's own registrations, or the kernel's list.
func TestAttachedElsewhere(t *testing.T) {
	const inode = 4242
	s, k := newScript(), &kernel{driver: 14, reg: always(unix.EINVAL)}
	pd := scripted(t, s, k)
	c := pd.ctx
	c.evidence.lookAt = func(int) explain.Buffer {
		return explain.Buffer{Open: true, IsBuf: true, Size: 1 << 20, Inode: inode, Exporter: "drm"}
	}
	c.evidence.machine = machine(t, map[string]string{"sys/class/drm/card0/device/driver": "-> ../../../../bus/pci/drivers/amdgpu"})
	register := func() *RegError {
		t.Helper()
		_, err := pd.RegMR(MRAttr{Kind: DMABufFD, FD: openFile(t), Length: 4096, Access: AccessLocalWrite, Policy: RouteIoctlOnly, SkipChecks: true})
		var e *RegError
		if !errors.As(err, &e) {
			t.Fatalf("%T %v", err, err)
		}
		return e
	}
	denied := func(string) ([]dmabuf.KernelBuf, error) {
		return nil, fmt.Errorf("bufinfo: %w", unix.EACCES)
	}
	listed := func(attached ...string) func(string) ([]dmabuf.KernelBuf, error) {
		return func(string) ([]dmabuf.KernelBuf, error) {
			return []dmabuf.KernelBuf{{Inode: 1, Attached: []string{"0000:09:00.0"}}, {Inode: inode, Exporter: "drm", Attached: attached}}, nil
		}
	}
	other := &Context{name: "roce7"}

	c.evidence.kernelBufs = denied
	if e := register(); e.Cause != fault.CauseUnknown || !strings.Contains(e.Detail, "could not be read") {
		t.Errorf("nothing read: %v", e)
	}
	held.Add(inode, other, other.name)
	if e := register(); e.Cause != fault.CausePinned || !strings.Contains(e.Detail, "attached to roce7, too") || e.Earliest != fault.StageAttach || e.Latest != fault.StageMap {
		t.Errorf("registered by this process: %v", e)
	}
	held.Remove(inode, other, other.name)
	held.Add(inode+1, other, other.name)
	held.Add(inode, c, c.name) // by this NIC itself
	c.evidence.kernelBufs = listed()
	if e := register(); e.Cause != fault.CauseUnknown || !strings.Contains(e.Detail, "no other device") {
		t.Errorf("by this NIC only: %v", e)
	}
	held.Remove(inode+1, other, other.name)
	held.Remove(inode, c, c.name)
	c.evidence.kernelBufs = listed("0000:08:00.0")
	if e := register(); e.Cause != fault.CausePinned || !strings.Contains(e.Detail, "attached to 0000:08:00.0, too") {
		t.Errorf("by the kernel's list: %v", e)
	}
	if list := held.Others(inode, ""); list != nil {
		t.Errorf("left: %v", list)
	}
}

// The kernel's list has PCI functions, and the message RDMA devices.
func TestNICsOfTheKernelsList(t *testing.T) {
	m := machine(t, map[string]string{
		"sys/class/infiniband/rxe0": "-> ../../devices/pci0000:00/0000:00:10.0/0000:01:00.0/infiniband/rxe0",
		"sys/class/infiniband/rxe1": "-> ../../devices/pci0000:00/0000:00:11.0/0000:02:00.0/infiniband/rxe1",
		"sys/devices/pci0000:00/0000:00:10.0/0000:01:00.0/infiniband/rxe0/node_type": "1: CA",
		"sys/devices/pci0000:00/0000:00:10.0/0000:01:00.0/vendor":                    "0x8086",
		"sys/devices/pci0000:00/0000:00:11.0/0000:02:00.0/infiniband/rxe1/node_type": "1: CA",
		"sys/devices/pci0000:00/0000:00:11.0/0000:02:00.0/vendor":                    "0x8086",
		"sys/bus/pci/devices/0000:01:00.0":                                           "-> ../../../devices/pci0000:00/0000:00:10.0/0000:01:00.0",
		"sys/bus/pci/devices/0000:02:00.0":                                           "-> ../../../devices/pci0000:00/0000:00:11.0/0000:02:00.0",
	})
	info, err := ibdev.Look(m.Sys.Root(), "rxe1")
	if err != nil || info.PCI == nil {
		t.Fatalf("%+v, %v", info, err)
	}
	c := &Context{name: "rxe1", info: info, sys: m.Sys}
	c.evidence.kernelBufs = func(string) ([]dmabuf.KernelBuf, error) {
		return []dmabuf.KernelBuf{{Inode: 5, Attached: []string{"0000:02:00.0", "0000:01:00.0", "0000:01:00.0", "gpu"}}}, nil
	}
	held.Add(5, nil, "rxe0")
	defer held.Remove(5, nil, "rxe0")
	if list, err := c.attachedElsewhere(5); err != nil || !slices.Equal(list, []string{"rxe0", "gpu"}) {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := c.attachedElsewhere(0); list != nil || err != nil {
		t.Errorf("of no buffer: %v, %v", list, err)
	}
}

// An MR's hold on a buffer ends with the MR, and not before.
func TestHoldingEnds(t *testing.T) {
	s, k := newScript(), &kernel{driver: 1, reg: always(0)}
	pd := scripted(t, s, k)
	attr := MRAttr{Kind: DMABufFD, FD: openFile(t), Length: 1, Policy: RouteIoctlOnly, SkipChecks: true}
	mr, err := pd.RegMR(attr)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(held.Others(0, "")); n != 0 {
		t.Errorf("a buffer that is not known is held: %d", n)
	}
	for range 2 { // as a registration of a dma-buf does
		held.Add(9, pd.ctx, pd.ctx.name)
	}
	mr.first.inode = 9
	k.destroy = unix.EBUSY
	if err := mr.Close(); err == nil || len(held.Others(9, "")) != 1 {
		t.Errorf("%v, held: %v", err, held.Others(9, ""))
	}
	k.destroy = 0
	if err := mr.Close(); err != nil || len(held.Others(9, "")) != 1 {
		t.Errorf("%v, the other MR's hold: %v", err, held.Others(9, ""))
	}
	held.Remove(9, pd.ctx, pd.ctx.name)
	if left := held.Others(9, ""); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A probe has the causes of a registration, by the same evidence.
func TestProbeByEvidence(t *testing.T) {
	const release, taint = "proc/sys/kernel/osrelease", "sys/module/ib_uverbs/taint"
	ofed := map[string]string{release: "5.15.0-122-generic", taint: "OE"}
	old := map[string]string{release: "5.4.0-26-generic", taint: ""}
	for _, row := range []struct {
		name           string
		files          map[string]string
		probe          func(refusal.Machine) Support
		reason, remedy string
	}{
		// linux-rdma/perftest#280
		{"no method, MLNX_OFED", ofed, func(m refusal.Machine) Support { return readProbe(unix.EPROTONOSUPPORT, "mlx5_core", m) }, "not the kernel's own (taint OE", "newer RDMA modules"},
		{"no method, an old kernel", old, func(m refusal.Machine) Support { return readProbe(unix.EPROTONOSUPPORT, "mlx5_core", m) }, "Linux 5.4.0-26-generic has no", "use Linux 5.12 or newer"},
		{"no context, an old kernel", old, func(m refusal.Machine) Support { return notOpened("/dev/null", unix.EPROTONOSUPPORT, m) }, "no GET_CONTEXT by ioctl", "use Linux 5.12 or newer"},
		{"no context, MLNX_OFED", ofed, func(m refusal.Machine) Support { return notOpened("/dev/null", unix.EPROTONOSUPPORT, m) }, "not the kernel's own", "newer RDMA modules"},
		// mlx5_ib_reg_user_mr_dmabuf
		{"no driver op, mlx5", map[string]string{release: "6.8.0"}, func(m refusal.Machine) Support { return readProbe(unix.EOPNOTSUPP, "mlx5_core", m) }, "CONFIG_INFINIBAND_ON_DEMAND_PAGING", "kernel with that option"},
		{"no driver op, another", map[string]string{release: "6.8.0"}, func(m refusal.Machine) Support { return readProbe(unix.EOPNOTSUPP, "hns3", m) }, "EOPNOTSUPP before any descriptor", "use a NIC and a kernel"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := row.probe(machine(t, row.files))
			if s.DMABufKernel != No || !strings.Contains(s.Reason, row.reason) || !strings.Contains(s.Remedy, row.remedy) {
				t.Errorf("%+v", s)
			}
		})
	}
}
