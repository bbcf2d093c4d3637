// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/refusal"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// machine is a machine of these files, below "sys" and "proc". A text that begins
// with "-> " is a symbolic link.
func machine(t *testing.T, files map[string]string) refusal.Machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, file)
		} else {
			err = os.WriteFile(file, []byte(text+"\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return refusal.Machine{Sys: sysfs.New(filepath.Join(root, "sys")), Proc: procfs.New(filepath.Join(root, "proc"))}
}

// of is a dma-buf of an exporter, of 1 MiB.
func of(exporter string) bufEvidence {
	return bufEvidence{open: true, isBuf: true, size: 1 << 20, inode: 77, exporter: exporter}
}

// Evidence in; cause, stages and remedy out. The rules of the exporters themselves,
// with their sources, are internal/refusal's and its tests'.
func TestCauseByEvidence(t *testing.T) {
	takes := dmabufSupport{provider: Yes, kernel: Yes, providerErrno: unix.EBADF, kernelErrno: unix.EBADF}
	refuses := func(n unix.Errno) dmabufSupport {
		return dmabufSupport{provider: Unknown, kernel: No, providerErrno: n, kernelErrno: n}
	}
	const (
		release = "proc/sys/kernel/osrelease"
		taint   = "sys/module/ib_uverbs/taint"
		memory  = "proc/meminfo"
	)
	unread := errors.New("bufinfo: EACCES")
	for _, row := range []struct {
		name     string
		ev       evidence
		files    map[string]string
		cause    Cause
		earliest Stage
		latest   Stage
		detail   []string
		remedy   []string
		mustNot  []string // in neither
	}{
		// linux-rdma/perftest#280, openucx/ucx#9908: not the kernel's own ib_uverbs.
		{
			"EPROTONOSUPPORT, MLNX_OFED on 5.15", evidence{route: RouteProvider, errno: unix.EPROTONOSUPPORT, probe: unix.EPROTONOSUPPORT, support: refuses(unix.EPROTONOSUPPORT), buf: of("nv_dmabuf")},
			map[string]string{release: "5.15.0-122-generic", taint: "OE"}, CauseNoMethod, StageUverbs, StageUverbs,
			[]string{"not the kernel's own", "taint OE"}, []string{"newer RDMA modules", "kernel's own"}, []string{"use Linux 5.12"},
		},
		{ // perplexityai/pplx-garden#3
			"EPROTONOSUPPORT, Linux 5.10", evidence{route: RouteProvider, errno: unix.EPROTONOSUPPORT, probe: unix.EPROTONOSUPPORT, support: refuses(unix.EPROTONOSUPPORT), buf: of("nvidia")},
			map[string]string{release: "5.10.0-28-amd64", taint: ""}, CauseNoMethod, StageUverbs, StageUverbs,
			[]string{"Linux 5.10.0-28-amd64"}, []string{"use Linux 5.12 or newer"}, []string{"DOCA"},
		},
		{
			"EPROTONOSUPPORT, nothing read", evidence{route: RouteIoctl, errno: unix.EPROTONOSUPPORT, probe: unix.EPROTONOSUPPORT, support: refuses(unix.EPROTONOSUPPORT), buf: of("nvidia")},
			nil, CauseNoMethod, StageUverbs, StageUverbs, []string{"either the kernel", "neither could be read"}, []string{"uname -r", "taint"}, nil,
		},
		{ // EOPNOTSUPP of the provider, which has no such op, over an old ib_uverbs
			"EOPNOTSUPP, and the probe says EPROTONOSUPPORT", evidence{route: RouteProvider, errno: unix.EOPNOTSUPP, probe: unix.EPROTONOSUPPORT, support: refuses(unix.EPROTONOSUPPORT), buf: of("nvidia")},
			map[string]string{release: "6.8.0", taint: "OE"}, CauseNoMethod, StageProvider, StageUverbs, []string{"not the kernel's own"}, nil, []string{"use Linux 5.12"},
		},
		{ // uverbs_process_attr: a mandatory attribute that it does not know; linux-rdma/perftest pull request 352
			"EPROTONOSUPPORT, and the probe says EBADF", evidence{route: RouteProvider, errno: unix.EPROTONOSUPPORT, probe: unix.EBADF, support: takes, buf: of("nv_dmabuf")},
			map[string]string{release: "5.10.0", taint: "OE"}, CauseUnknown, StageProvider, StageUverbs,
			[]string{"the kernel has REG_DMABUF_MR"}, []string{"ioctl route"}, []string{"use Linux 5.12", "taint"},
		},
		{
			"EPROTONOSUPPORT, and the probe is not permitted", evidence{route: RouteIoctl, errno: unix.EPROTONOSUPPORT, probe: unix.EPERM, support: dmabufSupport{kernelErrno: unix.EPERM}, buf: of("nv_dmabuf")},
			map[string]string{release: "5.10.0", taint: "OE"}, CauseUnknown, StageUverbs, StageUverbs,
			[]string{"with descriptor -1 it answered EPERM"}, nil, []string{"use Linux 5.12", "the kernel has REG_DMABUF_MR"},
		},

		// NVIDIA/open-gpu-kernel-modules#1130
		{
			"ENOMEM, nvidia-drm", evidence{route: RouteProvider, errno: unix.ENOMEM, probe: unix.EBADF, support: takes, buf: of("drm")},
			map[string]string{"sys/class/drm/card0/device/driver": "-> ../../../../bus/pci/drivers/nvidia"}, CauseVideoMemory, StageAttach, StageMap,
			[]string{"exporter nvidia-drm"}, []string{"allocate with CUDA and export with cuMemGetHandleForAddressRange"}, []string{"free memory", "register less"},
		},
		{
			"ENOMEM, a heap, little memory", evidence{route: RouteProvider, errno: unix.ENOMEM, probe: unix.EBADF, support: takes, buf: of("system")},
			map[string]string{memory: "MemAvailable: 100 kB"}, CauseNoMemory, StageProvider, StageDriver, nil, []string{"free memory, or register less"}, []string{"CUDA", "cgroup"},
		},
		{
			"ENOMEM, a heap, and memory enough", evidence{route: RouteProvider, errno: unix.ENOMEM, probe: unix.EBADF, support: takes, buf: of("system")},
			map[string]string{memory: "MemAvailable: 64000000 kB"}, CauseNoMemory, StageProvider, StageDriver,
			[]string{"more than the 0x1000 to register"}, []string{"cgroup", "MRs of this NIC"}, []string{"register less"},
		},
		{
			"ENOMEM, memory not read", evidence{route: RouteProvider, errno: unix.ENOMEM, probe: unix.EBADF, support: takes, buf: of("system")},
			nil, CauseNoMemory, StageProvider, StageDriver, nil, []string{"free memory, or register less"}, nil,
		},
		{ // the buffer has no part in it
			"ENOMEM, with descriptor -1 as well", evidence{route: RouteIoctl, errno: unix.ENOMEM, probe: unix.ENOMEM, support: takes, buf: of("drm")},
			map[string]string{"sys/class/drm/card0/device/driver": "-> ../../../../bus/pci/drivers/nvidia"}, CauseNoMemory, StageUverbs, StageUverbs,
			[]string{"also with descriptor -1"}, []string{"deregister MRs"}, []string{"nvidia-drm"},
		},

		// ai-dynamo/nixl#1694, Azure/azhpc-images#589, openucx/ucx#11571
		{
			"524, CUDA", evidence{route: RouteProvider, errno: errno.ENOTSUPP, probe: unix.EBADF, support: takes, buf: of("nv_dmabuf"), name: "mlx5_0"},
			map[string]string{"sys/module/nvidia/version": "580.95.05"}, CauseGate, StageAttach, StageMap,
			[]string{"gate in NVIDIA's driver 580.95.05", "NVRM: dma-buf attach failed:"},
			[]string{"NVreg_GrdmaPciTopoCheckOverride", "export without that flag", "`p2pcheck explain P2P-NV-GATE P2P-NV-FORCEPCIE`"}, []string{"memory of another kind"},
		},
		{
			"524, another exporter", evidence{route: RouteProvider, errno: errno.ENOTSUPP, probe: unix.EBADF, support: takes, buf: of("udmabuf"), name: "mlx5_0"},
			nil, CauseKernelENOTSUPP, StageAttach, StageDriver, []string{"the exporter (udmabuf), or the driver of mlx5_0"}, []string{"dmabuf-reg explain"}, []string{"NVreg", "P2P-NV"},
		},
		{ // a range that ends behind the buffer never reaches the exporter
			"524, CUDA, before the buffer", evidence{route: RouteProvider, errno: errno.ENOTSUPP, probe: errno.ENOTSUPP, support: takes, buf: of("nv_dmabuf")},
			nil, CauseKernelENOTSUPP, StageProvider, StageDriver, nil, nil, []string{"NVreg"},
		},

		// amdgpu_dma_buf_pin, xe_dma_buf_pin
		{
			"EINVAL, attached elsewhere", evidence{route: RouteProvider, errno: unix.EINVAL, probe: unix.EBADF, support: takes, buf: of("drm"), name: "rxe1", attached: []string{"rxe0"}},
			nil, CausePinned, StageAttach, StageMap, []string{"attached to rxe0, too"}, []string{"only with the NIC that reaches the GPU", "a buffer for each NIC"}, []string{"kernel log"},
		},
		{
			"EINVAL, attached nowhere else", evidence{route: RouteProvider, errno: unix.EINVAL, probe: unix.EBADF, support: takes, buf: of("drm"), name: "rxe1"},
			nil, CauseUnknown, StageAttach, StageDriver, []string{"no other device has the buffer attached"}, []string{"dmesg"}, []string{"other registration"},
		},
		{
			"EINVAL, not read", evidence{route: RouteProvider, errno: unix.EINVAL, probe: unix.EBADF, support: takes, buf: of("drm"), name: "rxe1", unread: unread},
			nil, CauseUnknown, StageAttach, StageDriver, []string{"could not be read (bufinfo: EACCES)"}, []string{"if it is registered with another NIC"}, nil,
		},
		{ // the range is wrong, with another NIC attached or not
			"EINVAL, beyond the end", evidence{route: RouteProvider, errno: unix.EINVAL, probe: unix.EBADF, support: takes, buf: bufEvidence{open: true, isBuf: true, size: 1, exporter: "drm"}, attached: []string{"rxe0"}},
			nil, CauseBadRange, StageGet, StageGet, []string{"> size 0x1"}, nil, []string{"rxe0"},
		},
		{
			"EINVAL, a heap", evidence{route: RouteProvider, errno: unix.EINVAL, probe: unix.EBADF, support: takes, buf: of("system"), name: "efa_0", attached: []string{"rxe0"}},
			nil, CauseUnknown, StageAttach, StageDriver, []string{"the exporter (system), or the driver of efa_0"}, []string{"dmabuf-reg explain"}, []string{"rxe0"},
		},

		// EOPNOTSUPP
		{ // mlx5_ib_reg_user_mr_dmabuf
			"EOPNOTSUPP, mlx5 without on-demand paging", evidence{route: RouteIoctl, errno: unix.EOPNOTSUPP, probe: unix.EOPNOTSUPP, support: refuses(unix.EOPNOTSUPP), buf: of("nv_dmabuf"), driver: "mlx5_core"},
			map[string]string{release: "6.8.0", "sys/module/mlx5_ib/taint": ""}, CauseNoDriverOp, StageUverbs, StageUverbs,
			[]string{"CONFIG_INFINIBAND_ON_DEMAND_PAGING"}, []string{"kernel with that option"}, []string{"irdma", "DOCA"},
		},
		{
			"EOPNOTSUPP, mlx5 of MLNX_OFED", evidence{route: RouteIoctl, errno: unix.EOPNOTSUPP, probe: unix.EOPNOTSUPP, support: refuses(unix.EOPNOTSUPP), buf: of("nv_dmabuf"), driver: "mlx5_core"},
			map[string]string{release: "6.8.0", "sys/module/mlx5_ib/taint": "OE"}, CauseNoDriverOp, StageUverbs, StageUverbs,
			[]string{"mlx5_ib is not the kernel's own"}, []string{"newer RDMA modules"}, nil,
		},
		{ // the list of PD.RegMR
			"EOPNOTSUPP, irdma of 6.1", evidence{route: RouteIoctl, errno: unix.EOPNOTSUPP, probe: unix.EOPNOTSUPP, support: refuses(unix.EOPNOTSUPP), buf: of("drm"), driver: "ice"},
			map[string]string{release: "6.1.0-30-amd64"}, CauseNoDriverOp, StageUverbs, StageUverbs, []string{"ice in Linux 6.1.0-30-amd64"}, []string{"use Linux 6.12 or newer"}, nil,
		},
		{
			"EOPNOTSUPP, irdma of 6.12", evidence{route: RouteIoctl, errno: unix.EOPNOTSUPP, probe: unix.EOPNOTSUPP, support: refuses(unix.EOPNOTSUPP), buf: of("drm"), driver: "ice"},
			map[string]string{release: "6.12.43"}, CauseNoDriverOp, StageUverbs, StageUverbs, nil, []string{"use a NIC and a kernel whose driver does"}, []string{"6.12"},
		},
		{
			"EOPNOTSUPP, the kernel's own rxe", evidence{route: RouteIoctl, errno: unix.EOPNOTSUPP, probe: unix.EOPNOTSUPP, support: refuses(unix.EOPNOTSUPP), buf: of("drm"), driver: "rdma_rxe", software: true},
			nil, CauseNoDriverOp, StageUverbs, StageUverbs, []string{"rdma_rxe emulates a NIC"}, []string{"use a NIC"}, nil,
		},
		{ // efa_alloc_mr
			"EOPNOTSUPP, of these flags", evidence{route: RouteIoctl, errno: unix.EOPNOTSUPP, probe: unix.EOPNOTSUPP, support: takes, buf: of("nv_dmabuf"), driver: "efa"},
			nil, CauseAccess, StageUverbs, StageUverbs, []string{"whatever the buffer", "local-write"}, []string{"fewer access flags"}, []string{"memory of another kind"},
		},
		{
			"EOPNOTSUPP, of this buffer", evidence{route: RouteIoctl, errno: unix.EOPNOTSUPP, probe: unix.EBADF, support: takes, buf: of("habanalabs"), name: "mlx5_0"},
			nil, CauseNotSupported, StageAttach, StageDriver, []string{"mlx5_0 registers dma-bufs, but not this one, of the exporter (habanalabs)"}, []string{"memory of another kind"}, nil,
		},
		{ // i915_gem_dmabuf_attach
			"EOPNOTSUPP, i915", evidence{route: RouteIoctl, errno: unix.EOPNOTSUPP, probe: unix.EBADF, support: takes, buf: of("i915")},
			nil, CauseNotSupported, StageAttach, StageMap, []string{"in system memory"}, []string{"placements"}, []string{"access flags"},
		},

		// ENOSYS: of a libibverbs without the function, or drm_gem_map_attach's
		{
			"ENOSYS, an old libibverbs", evidence{route: RouteProvider, errno: unix.ENOSYS, probe: unix.EBADF, support: dmabufSupport{provider: No, kernel: Yes, providerErrno: errNoSymbol, kernelErrno: unix.EBADF}, buf: of("drm")},
			nil, CauseNoProviderOp, StageProvider, StageProvider, []string{"rdma-core 34"}, []string{"ioctl route"}, nil,
		},
		{
			"ENOSYS, of the kernel", evidence{route: RouteProvider, errno: unix.ENOSYS, probe: unix.EBADF, support: takes, buf: of("udmabuf")},
			nil, CauseUnknown, StageAttach, StageDriver, []string{"ENOSYS"}, nil, []string{"rdma-core"},
		},

		{
			"EPERM, not root", evidence{route: RouteIoctl, errno: unix.EPERM, probe: unix.EPERM, support: takes, buf: of("system")},
			nil, CausePermission, StageUverbs, StageDriver, []string{"refused without a buffer"}, []string{"run as root"}, nil,
		},
		{
			"EPERM, root", evidence{route: RouteIoctl, errno: unix.EPERM, probe: unix.EBADF, support: takes, buf: of("system"), root: true},
			nil, CausePermission, StageAttach, StageDriver, []string{"about this buffer"}, []string{"root may not either", "audit"}, []string{"run as root"},
		},
		{
			"EACCES, not root, this buffer", evidence{route: RouteIoctl, errno: unix.EACCES, probe: unix.EBADF, support: takes, buf: of("system")},
			nil, CausePermission, StageAttach, StageDriver, []string{"about this buffer"}, []string{"run as root"}, nil,
		},
		{ // i915_gem_userptr.c
			"EFAULT", evidence{route: RouteIoctl, errno: unix.EFAULT, probe: unix.EBADF, support: takes, buf: of("i915")},
			nil, CauseFault, StageAttach, StageDriver, []string{"about this buffer"}, []string{"user pointer"}, nil,
		},
		{
			"EBADF, closed", evidence{route: RouteIoctl, errno: unix.EBADF, probe: unix.EBADF, support: takes},
			nil, CauseClosedFD, StageGet, StageGet, nil, []string{"open descriptor"}, nil,
		},
		{
			"EBADF, open by now", evidence{route: RouteIoctl, errno: unix.EBADF, probe: unix.EBADF, support: takes, buf: bufEvidence{open: true}},
			nil, CauseUnknown, StageGet, StageDriver, []string{"is open now"}, []string{"keep the descriptor open"}, nil,
		},
		{
			"ENODEV, the NIC is gone", evidence{route: RouteIoctl, errno: unix.ENODEV, probe: unix.ENODEV, support: takes, buf: of("vfio_pci_core")},
			nil, CauseDeviceGone, StageUverbs, StageUverbs, []string{"not to descriptor -1 either"}, nil, []string{"exporter"},
		},
		{ // vfio_pci_dma_buf_attach, of a buffer that was revoked
			"ENODEV, the NIC is there", evidence{route: RouteIoctl, errno: unix.ENODEV, probe: unix.EBADF, support: takes, buf: of("vfio_pci_core")},
			nil, CauseGone, StageAttach, StageDriver, []string{"taken the memory away"}, []string{"allocate the memory anew"}, []string{"open it again"},
		},
		{
			"EIO, the NIC is there", evidence{route: RouteIoctl, errno: unix.EIO, probe: unix.EBADF, support: takes, buf: of("drm")},
			nil, CauseUnknown, StageAttach, StageDriver, []string{"EIO"}, []string{"dmesg"}, []string{"open it again"},
		},
		{
			"EAGAIN", evidence{route: RouteIoctl, errno: unix.EAGAIN, probe: unix.EBADF, support: takes, buf: of("i915")},
			nil, CauseUnknown, StageAttach, StageDriver, []string{"interrupted"}, []string{"register again"}, nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.ev.machine = machine(t, row.files)
			e := row.ev.explain(&MRAttr{Kind: DMABufFD, FD: 9, Length: 0x1000, Access: AccessLocalWrite})
			if e.Cause != row.cause || e.Earliest != row.earliest || e.Latest != row.latest {
				t.Errorf("%v, %v to %v; want %v, %v to %v", e.Cause, e.Earliest, e.Latest, row.cause, row.earliest, row.latest)
			}
			for _, want := range row.detail {
				if !strings.Contains(e.Detail, want) {
					t.Errorf("detail %q, want %q in it", e.Detail, want)
				}
			}
			for _, want := range row.remedy {
				if !strings.Contains(e.Remedy, want) {
					t.Errorf("remedy %q, want %q in it", e.Remedy, want)
				}
			}
			for _, not := range row.mustNot {
				if strings.Contains(e.Detail+"; "+e.Remedy, not) {
					t.Errorf("%q is in it: %v", not, e)
				}
			}
			if e.Remedy == "" {
				t.Errorf("no remedy: %v", e)
			}
		})
	}
}

// A buffer that one NIC has pinned, and another NIC that is refused. The evidence is
// this process's own registrations, or the kernel's list.
func TestAttachedElsewhere(t *testing.T) {
	const inode = 4242
	s, k := newScript(), &kernel{driver: 14, reg: always(unix.EINVAL)}
	pd := scripted(t, s, k)
	c := pd.ctx
	c.lookAt = func(int) bufEvidence {
		return bufEvidence{open: true, isBuf: true, size: 1 << 20, inode: inode, exporter: "drm"}
	}
	c.machine = machine(t, map[string]string{"sys/class/drm/card0/device/driver": "-> ../../../../bus/pci/drivers/amdgpu"})
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

	c.kernelBufs = denied
	if e := register(); e.Cause != CauseUnknown || !strings.Contains(e.Detail, "could not be read") {
		t.Errorf("nothing read: %v", e)
	}
	held.add(inode, other)
	if e := register(); e.Cause != CausePinned || !strings.Contains(e.Detail, "attached to roce7, too") || e.Earliest != StageAttach || e.Latest != StageMap {
		t.Errorf("registered by this process: %v", e)
	}
	held.remove(inode, other)
	held.add(inode+1, other)
	held.add(inode, c) // by this NIC itself
	c.kernelBufs = listed()
	if e := register(); e.Cause != CauseUnknown || !strings.Contains(e.Detail, "no other device") {
		t.Errorf("by this NIC only: %v", e)
	}
	held.remove(inode+1, other)
	held.remove(inode, c)
	c.kernelBufs = listed("0000:08:00.0")
	if e := register(); e.Cause != CausePinned || !strings.Contains(e.Detail, "attached to 0000:08:00.0, too") {
		t.Errorf("by the kernel's list: %v", e)
	}
	if list := held.others(inode, ""); list != nil {
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
	c.kernelBufs = func(string) ([]dmabuf.KernelBuf, error) {
		return []dmabuf.KernelBuf{{Inode: 5, Attached: []string{"0000:02:00.0", "0000:01:00.0", "0000:01:00.0", "gpu"}}}, nil
	}
	held.add(5, &Context{name: "rxe0"})
	defer clear(held.n)
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
	if len(held.n) != 0 {
		t.Errorf("a buffer that is not known is held: %v", held.n)
	}
	for range 2 { // as a registration of a dma-buf does
		held.add(9, pd.ctx)
	}
	mr.first.inode = 9
	k.destroy = unix.EBUSY
	if err := mr.Close(); err == nil || len(held.others(9, "")) != 1 {
		t.Errorf("%v, held: %v", err, held.n)
	}
	k.destroy = 0
	if err := mr.Close(); err != nil || len(held.others(9, "")) != 1 {
		t.Errorf("%v, the other MR's hold: %v", err, held.n)
	}
	held.remove(9, pd.ctx)
	if len(held.n) != 0 {
		t.Errorf("left: %v", held.n)
	}
}

// A cause reads back from its name, and the exporters' have the names of their rules.
func TestCauseText(t *testing.T) {
	for i := range causeNames {
		var c Cause
		if err := c.UnmarshalText([]byte(Cause(i).String())); err != nil || c != Cause(i) {
			t.Errorf("%v reads back as %v, %v", Cause(i), c, err)
		}
	}
	for from, to := range causeOf {
		if from.String() != to.String() {
			t.Errorf("%v is called %v", from, to)
		}
	}
	var c Cause
	if err := c.UnmarshalText([]byte("no such")); err == nil {
		t.Errorf("no such cause: %v", c)
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
