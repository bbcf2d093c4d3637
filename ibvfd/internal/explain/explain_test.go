// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/errno"
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

// of is a dma-buf of an exporter, of 1 MiB.
func of(exporter string) Buffer {
	return Buffer{Open: true, IsBuf: true, Size: 1 << 20, Inode: 77, Exporter: exporter}
}

// Evidence in; cause, stages and remedy out. The rules of the exporters themselves,
// with their sources, are internal/refusal's and its tests'.
func TestCauseByEvidence(t *testing.T) {
	takes := Answers{unix.EBADF, unix.EBADF}
	refuses := func(n unix.Errno) Answers {
		return Answers{n, n}
	}
	const (
		release = "proc/sys/kernel/osrelease"
		taint   = "sys/module/ib_uverbs/taint"
		memory  = "proc/meminfo"
	)
	unread := errors.New("bufinfo: EACCES")
	for _, row := range []struct {
		name     string
		ev       Evidence
		files    map[string]string
		cause    fault.Cause
		earliest fault.Stage
		latest   fault.Stage
		detail   []string
		remedy   []string
		mustNot  []string // in neither
	}{
		// linux-rdma/perftest#280, openucx/ucx#9908: not the kernel's own ib_uverbs.
		{
			"EPROTONOSUPPORT, MLNX_OFED on 5.15", Evidence{ByProvider: true, Errno: unix.EPROTONOSUPPORT, Probe: unix.EPROTONOSUPPORT, Support: refuses(unix.EPROTONOSUPPORT), Buf: of("nv_dmabuf")},
			map[string]string{release: "5.15.0-122-generic", taint: "OE"}, fault.CauseNoMethod, fault.StageUverbs, fault.StageUverbs,
			[]string{"not the kernel's own", "taint OE"}, []string{"newer RDMA modules", "kernel's own"}, []string{"use Linux 5.12"},
		},
		{ // perplexityai/pplx-garden#3
			"EPROTONOSUPPORT, Linux 5.10", Evidence{ByProvider: true, Errno: unix.EPROTONOSUPPORT, Probe: unix.EPROTONOSUPPORT, Support: refuses(unix.EPROTONOSUPPORT), Buf: of("nvidia")},
			map[string]string{release: "5.10.0-28-amd64", taint: ""}, fault.CauseNoMethod, fault.StageUverbs, fault.StageUverbs,
			[]string{"Linux 5.10.0-28-amd64"}, []string{"use Linux 5.12 or newer"}, []string{"DOCA"},
		},
		{
			"EPROTONOSUPPORT, nothing read", Evidence{Errno: unix.EPROTONOSUPPORT, Probe: unix.EPROTONOSUPPORT, Support: refuses(unix.EPROTONOSUPPORT), Buf: of("nvidia")},
			nil, fault.CauseNoMethod, fault.StageUverbs, fault.StageUverbs, []string{"either the kernel", "neither could be read"}, []string{"uname -r", "taint"}, nil,
		},
		{ // EOPNOTSUPP of the provider, which has no such op, over an old ib_uverbs
			"EOPNOTSUPP, and the probe says EPROTONOSUPPORT", Evidence{ByProvider: true, Errno: unix.EOPNOTSUPP, Probe: unix.EPROTONOSUPPORT, Support: refuses(unix.EPROTONOSUPPORT), Buf: of("nvidia")},
			map[string]string{release: "6.8.0", taint: "OE"}, fault.CauseNoMethod, fault.StageProvider, fault.StageUverbs, []string{"not the kernel's own"}, nil, []string{"use Linux 5.12"},
		},
		{ // uverbs_process_attr: a mandatory attribute that it does not know; linux-rdma/perftest pull request 352
			"EPROTONOSUPPORT, and the probe says EBADF", Evidence{ByProvider: true, Errno: unix.EPROTONOSUPPORT, Probe: unix.EBADF, Support: takes, Buf: of("nv_dmabuf")},
			map[string]string{release: "5.10.0", taint: "OE"}, fault.CauseUnknown, fault.StageProvider, fault.StageUverbs,
			[]string{"the kernel has REG_DMABUF_MR"}, []string{"ioctl route"}, []string{"use Linux 5.12", "taint"},
		},
		{
			"EPROTONOSUPPORT, and the probe is not permitted", Evidence{Errno: unix.EPROTONOSUPPORT, Probe: unix.EPERM, Support: Answers{Kernel: unix.EPERM}, Buf: of("nv_dmabuf")},
			map[string]string{release: "5.10.0", taint: "OE"}, fault.CauseUnknown, fault.StageUverbs, fault.StageUverbs,
			[]string{"with descriptor -1 it answered EPERM"}, nil, []string{"use Linux 5.12", "the kernel has REG_DMABUF_MR"},
		},

		// NVIDIA/open-gpu-kernel-modules#1130
		{
			"ENOMEM, nvidia-drm", Evidence{ByProvider: true, Errno: unix.ENOMEM, Probe: unix.EBADF, Support: takes, Buf: of("drm")},
			map[string]string{"sys/class/drm/card0/device/driver": "-> ../../../../bus/pci/drivers/nvidia"}, fault.CauseVideoMemory, fault.StageAttach, fault.StageMap,
			[]string{"exporter nvidia-drm"}, []string{"allocate with CUDA and export with cuMemGetHandleForAddressRange"}, []string{"free memory", "register less"},
		},
		{
			"ENOMEM, a heap, little memory", Evidence{ByProvider: true, Errno: unix.ENOMEM, Probe: unix.EBADF, Support: takes, Buf: of("system")},
			map[string]string{memory: "MemAvailable: 100 kB"}, fault.CauseNoMemory, fault.StageProvider, fault.StageDriver, nil, []string{"free memory, or register less"}, []string{"CUDA", "cgroup"},
		},
		{
			"ENOMEM, a heap, and memory enough", Evidence{ByProvider: true, Errno: unix.ENOMEM, Probe: unix.EBADF, Support: takes, Buf: of("system")},
			map[string]string{memory: "MemAvailable: 64000000 kB"}, fault.CauseNoMemory, fault.StageProvider, fault.StageDriver,
			[]string{"more than the 0x1000 to register"}, []string{"cgroup", "MRs of this NIC"}, []string{"register less"},
		},
		{
			"ENOMEM, memory not read", Evidence{ByProvider: true, Errno: unix.ENOMEM, Probe: unix.EBADF, Support: takes, Buf: of("system")},
			nil, fault.CauseNoMemory, fault.StageProvider, fault.StageDriver, nil, []string{"free memory, or register less"}, nil,
		},
		{ // the buffer has no part in it
			"ENOMEM, with descriptor -1 as well", Evidence{Errno: unix.ENOMEM, Probe: unix.ENOMEM, Support: takes, Buf: of("drm")},
			map[string]string{"sys/class/drm/card0/device/driver": "-> ../../../../bus/pci/drivers/nvidia"}, fault.CauseNoMemory, fault.StageUverbs, fault.StageUverbs,
			[]string{"also with descriptor -1"}, []string{"deregister MRs"}, []string{"nvidia-drm"},
		},

		// ai-dynamo/nixl#1694, Azure/azhpc-images#589, openucx/ucx#11571
		{
			"524, CUDA", Evidence{ByProvider: true, Errno: errno.ENOTSUPP, Probe: unix.EBADF, Support: takes, Buf: of("nv_dmabuf"), Name: "mlx5_0"},
			map[string]string{"sys/module/nvidia/version": "580.95.05"}, fault.CauseGate, fault.StageAttach, fault.StageMap,
			[]string{"gate in NVIDIA's driver 580.95.05", "NVRM: dma-buf attach failed:"},
			[]string{"NVreg_GrdmaPciTopoCheckOverride", "export without that flag", "`p2pcheck explain P2P-NV-GATE P2P-NV-FORCEPCIE`"}, []string{"memory of another kind"},
		},
		{
			"524, another exporter", Evidence{ByProvider: true, Errno: errno.ENOTSUPP, Probe: unix.EBADF, Support: takes, Buf: of("udmabuf"), Name: "mlx5_0"},
			nil, fault.CauseKernelENOTSUPP, fault.StageAttach, fault.StageDriver, []string{"the exporter (udmabuf), or the driver of mlx5_0"}, []string{"dmabuf-reg explain"}, []string{"NVreg", "P2P-NV"},
		},
		{ // a range that ends behind the buffer never reaches the exporter
			"524, CUDA, before the buffer", Evidence{ByProvider: true, Errno: errno.ENOTSUPP, Probe: errno.ENOTSUPP, Support: takes, Buf: of("nv_dmabuf")},
			nil, fault.CauseKernelENOTSUPP, fault.StageProvider, fault.StageDriver, nil, nil, []string{"NVreg"},
		},

		// amdgpu_dma_buf_pin, xe_dma_buf_pin
		{
			"EINVAL, attached elsewhere", Evidence{ByProvider: true, Errno: unix.EINVAL, Probe: unix.EBADF, Support: takes, Buf: of("drm"), Name: "rxe1", Attached: []string{"rxe0"}},
			nil, fault.CausePinned, fault.StageAttach, fault.StageMap, []string{"attached to rxe0, too"}, []string{"only with the NIC that reaches the GPU", "a buffer for each NIC"}, []string{"kernel log"},
		},
		{
			"EINVAL, attached nowhere else", Evidence{ByProvider: true, Errno: unix.EINVAL, Probe: unix.EBADF, Support: takes, Buf: of("drm"), Name: "rxe1"},
			nil, fault.CauseUnknown, fault.StageAttach, fault.StageDriver, []string{"no other device has the buffer attached"}, []string{"dmesg"}, []string{"other registration"},
		},
		{
			"EINVAL, not read", Evidence{ByProvider: true, Errno: unix.EINVAL, Probe: unix.EBADF, Support: takes, Buf: of("drm"), Name: "rxe1", Unread: unread},
			nil, fault.CauseUnknown, fault.StageAttach, fault.StageDriver, []string{"could not be read (bufinfo: EACCES)"}, []string{"if it is registered with another NIC"}, nil,
		},
		{ // the range is wrong, with another NIC attached or not
			"EINVAL, Beyond the end", Evidence{ByProvider: true, Errno: unix.EINVAL, Probe: unix.EBADF, Support: takes, Buf: Buffer{Open: true, IsBuf: true, Size: 1, Exporter: "drm"}, Attached: []string{"rxe0"}},
			nil, fault.CauseBadRange, fault.StageGet, fault.StageGet, []string{"> size 0x1"}, nil, []string{"rxe0"},
		},
		{
			"EINVAL, a heap", Evidence{ByProvider: true, Errno: unix.EINVAL, Probe: unix.EBADF, Support: takes, Buf: of("system"), Name: "efa_0", Attached: []string{"rxe0"}},
			nil, fault.CauseUnknown, fault.StageAttach, fault.StageDriver, []string{"the exporter (system), or the driver of efa_0"}, []string{"dmabuf-reg explain"}, []string{"rxe0"},
		},

		// EOPNOTSUPP
		{ // mlx5_ib_reg_user_mr_dmabuf
			"EOPNOTSUPP, mlx5 without on-demand paging", Evidence{Errno: unix.EOPNOTSUPP, Probe: unix.EOPNOTSUPP, Support: refuses(unix.EOPNOTSUPP), Buf: of("nv_dmabuf"), Driver: "mlx5_core"},
			map[string]string{release: "6.8.0", "sys/module/mlx5_ib/taint": ""}, fault.CauseNoDriverOp, fault.StageUverbs, fault.StageUverbs,
			[]string{"CONFIG_INFINIBAND_ON_DEMAND_PAGING"}, []string{"kernel with that option"}, []string{"irdma", "DOCA"},
		},
		{
			"EOPNOTSUPP, mlx5 of MLNX_OFED", Evidence{Errno: unix.EOPNOTSUPP, Probe: unix.EOPNOTSUPP, Support: refuses(unix.EOPNOTSUPP), Buf: of("nv_dmabuf"), Driver: "mlx5_core"},
			map[string]string{release: "6.8.0", "sys/module/mlx5_ib/taint": "OE"}, fault.CauseNoDriverOp, fault.StageUverbs, fault.StageUverbs,
			[]string{"mlx5_ib is not the kernel's own"}, []string{"newer RDMA modules"}, nil,
		},
		{ // the list of PD.RegMR
			"EOPNOTSUPP, irdma of 6.1", Evidence{Errno: unix.EOPNOTSUPP, Probe: unix.EOPNOTSUPP, Support: refuses(unix.EOPNOTSUPP), Buf: of("drm"), Driver: "ice"},
			map[string]string{release: "6.1.0-30-amd64"}, fault.CauseNoDriverOp, fault.StageUverbs, fault.StageUverbs, []string{"ice in Linux 6.1.0-30-amd64"}, []string{"use Linux 6.12 or newer"}, nil,
		},
		{
			"EOPNOTSUPP, irdma of 6.12", Evidence{Errno: unix.EOPNOTSUPP, Probe: unix.EOPNOTSUPP, Support: refuses(unix.EOPNOTSUPP), Buf: of("drm"), Driver: "ice"},
			map[string]string{release: "6.12.43"}, fault.CauseNoDriverOp, fault.StageUverbs, fault.StageUverbs, nil, []string{"use a NIC and a kernel whose driver does"}, []string{"6.12"},
		},
		{
			"EOPNOTSUPP, the kernel's own rxe", Evidence{Errno: unix.EOPNOTSUPP, Probe: unix.EOPNOTSUPP, Support: refuses(unix.EOPNOTSUPP), Buf: of("drm"), Driver: "rdma_rxe", Software: true},
			nil, fault.CauseNoDriverOp, fault.StageUverbs, fault.StageUverbs, []string{"rdma_rxe emulates a NIC"}, []string{"use a NIC"}, nil,
		},
		{ // efa_alloc_mr
			"EOPNOTSUPP, of these flags", Evidence{Errno: unix.EOPNOTSUPP, Probe: unix.EOPNOTSUPP, Support: takes, Buf: of("nv_dmabuf"), Driver: "efa"},
			nil, fault.CauseAccess, fault.StageUverbs, fault.StageUverbs, []string{"whatever the buffer", "local-write"}, []string{"fewer access flags"}, []string{"memory of another kind"},
		},
		{
			"EOPNOTSUPP, of this buffer", Evidence{Errno: unix.EOPNOTSUPP, Probe: unix.EBADF, Support: takes, Buf: of("habanalabs"), Name: "mlx5_0"},
			nil, fault.CauseNotSupported, fault.StageAttach, fault.StageDriver, []string{"mlx5_0 registers dma-bufs, but not this one, of the exporter (habanalabs)"}, []string{"memory of another kind"}, nil,
		},
		{ // i915_gem_dmabuf_attach
			"EOPNOTSUPP, i915", Evidence{Errno: unix.EOPNOTSUPP, Probe: unix.EBADF, Support: takes, Buf: of("i915")},
			nil, fault.CauseNotSupported, fault.StageAttach, fault.StageMap, []string{"in system memory"}, []string{"placements"}, []string{"access flags"},
		},

		// ENOSYS: of a libibverbs without the function, or drm_gem_map_attach's
		{
			"ENOSYS, an old libibverbs", Evidence{ByProvider: true, Errno: unix.ENOSYS, Probe: unix.EBADF, Support: Answers{NoSymbol, unix.EBADF}, Buf: of("drm")},
			nil, fault.CauseNoProviderOp, fault.StageProvider, fault.StageProvider, []string{"rdma-core 34"}, []string{"ioctl route"}, nil,
		},
		{
			"ENOSYS, of the kernel", Evidence{ByProvider: true, Errno: unix.ENOSYS, Probe: unix.EBADF, Support: takes, Buf: of("udmabuf")},
			nil, fault.CauseUnknown, fault.StageAttach, fault.StageDriver, []string{"ENOSYS"}, nil, []string{"rdma-core"},
		},

		{
			"EPERM, not root", Evidence{Errno: unix.EPERM, Probe: unix.EPERM, Support: takes, Buf: of("system")},
			nil, fault.CausePermission, fault.StageUverbs, fault.StageDriver, []string{"refused without a buffer"}, []string{"run as root"}, nil,
		},
		{
			"EPERM, root", Evidence{Errno: unix.EPERM, Probe: unix.EBADF, Support: takes, Buf: of("system"), Root: true},
			nil, fault.CausePermission, fault.StageAttach, fault.StageDriver, []string{"about this buffer"}, []string{"root may not either", "audit"}, []string{"run as root"},
		},
		{
			"EACCES, not root, this buffer", Evidence{Errno: unix.EACCES, Probe: unix.EBADF, Support: takes, Buf: of("system")},
			nil, fault.CausePermission, fault.StageAttach, fault.StageDriver, []string{"about this buffer"}, []string{"run as root"}, nil,
		},
		{ // i915_gem_userptr.c
			"EFAULT", Evidence{Errno: unix.EFAULT, Probe: unix.EBADF, Support: takes, Buf: of("i915")},
			nil, fault.CauseFault, fault.StageAttach, fault.StageDriver, []string{"about this buffer"}, []string{"user pointer"}, nil,
		},
		{
			"EBADF, closed", Evidence{Errno: unix.EBADF, Probe: unix.EBADF, Support: takes},
			nil, fault.CauseClosedFD, fault.StageGet, fault.StageGet, nil, []string{"open descriptor"}, nil,
		},
		{
			"EBADF, open by now", Evidence{Errno: unix.EBADF, Probe: unix.EBADF, Support: takes, Buf: Buffer{Open: true}},
			nil, fault.CauseUnknown, fault.StageGet, fault.StageDriver, []string{"is open now"}, []string{"keep the descriptor open"}, nil,
		},
		{
			"ENODEV, the NIC is gone", Evidence{Errno: unix.ENODEV, Probe: unix.ENODEV, Support: takes, Buf: of("vfio_pci_core")},
			nil, fault.CauseDeviceGone, fault.StageUverbs, fault.StageUverbs, []string{"not to descriptor -1 either"}, nil, []string{"exporter"},
		},
		{ // vfio_pci_dma_buf_attach, of a buffer that was revoked
			"ENODEV, the NIC is there", Evidence{Errno: unix.ENODEV, Probe: unix.EBADF, Support: takes, Buf: of("vfio_pci_core")},
			nil, fault.CauseGone, fault.StageAttach, fault.StageDriver, []string{"taken the memory away"}, []string{"allocate the memory anew"}, []string{"open it again"},
		},
		{
			"EIO, the NIC is there", Evidence{Errno: unix.EIO, Probe: unix.EBADF, Support: takes, Buf: of("drm")},
			nil, fault.CauseUnknown, fault.StageAttach, fault.StageDriver, []string{"EIO"}, []string{"dmesg"}, []string{"open it again"},
		},
		{
			"EAGAIN", Evidence{Errno: unix.EAGAIN, Probe: unix.EBADF, Support: takes, Buf: of("i915")},
			nil, fault.CauseUnknown, fault.StageAttach, fault.StageDriver, []string{"interrupted"}, []string{"register again"}, nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.ev.Machine = machine(t, row.files)
			e := row.ev.Explain(Request{Length: 0x1000, Access: uverbs.AccessLocalWrite})
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

// The causes that the rules of exporters pick have the names of those rules.
func TestCausesOfExporters(t *testing.T) {
	for from, to := range causeOf {
		if from.String() != to.String() {
			t.Errorf("%v is called %v", from, to)
		}
	}
}
