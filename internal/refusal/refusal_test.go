// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// tree is a machine's files by name below its root, "sys/..." and "proc/...". A text
// that begins with "-> " is a symbolic link.
type tree map[string]string

func (f tree) machine(t *testing.T) Machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range f {
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
	return Machine{Sys: sysfs.New(filepath.Join(root, "sys")), Proc: procfs.New(filepath.Join(root, "proc"))}
}

// with is both, the second's files instead of the first's.
func (f tree) with(more tree) tree {
	all := tree{}
	for _, part := range []tree{f, more} {
		for name, text := range part {
			all[name] = text
		}
	}
	return all
}

const (
	gpuAt  = "0009:01:00.0"
	gpu2At = "0019:01:00.0"
	nicAt  = "0002:03:00.0"
)

// gpu is a GPU that nvidia drives, in an IOMMU group.
func gpu(at, device, group string) tree {
	dir := "sys/bus/pci/devices/" + at + "/"
	return tree{
		dir + "vendor": "0x10de", dir + "device": device, dir + "class": "0x030200",
		dir + "iommu_group":                          "-> ../../../../kernel/iommu_groups/" + group,
		"sys/bus/pci/drivers/nvidia/" + at:           "-> ../../devices/" + at,
		"sys/bus/pci/drivers/nvidia/new_id":          "",
		"sys/bus/pci/drivers/nvidia/unbind":          "",
		"sys/kernel/iommu_groups/" + group + "/type": "DMA-FQ",
	}
}

// nic is the importer, in an IOMMU group.
func nic(group string) tree {
	dir := "sys/bus/pci/devices/" + nicAt + "/"
	return tree{
		dir + "vendor": "0x15b3", dir + "device": "0x1023", dir + "class": "0x020700",
		dir + "iommu_group": "-> ../../../../kernel/iommu_groups/" + group,
	}
}

func driver(version, params string) tree {
	return tree{"sys/module/nvidia/version": version, "proc/driver/nvidia/params": "DmaRemapPeerMmio: 1\nGrdmaPciTopoCheckOverride: " + params}
}

// drmNodes are DRM devices by the driver of the device below.
func drmNodes(drivers ...string) tree {
	f := tree{"sys/class/drm/version": "drm 1.1.0 20060810"}
	for i, d := range drivers {
		card := "sys/class/drm/card" + string(rune('0'+i))
		f[card+"/device/driver"] = "-> ../../../../bus/pci/drivers/" + d
		f[card+"-DP-1/status"] = "disconnected" // a connector
		f["sys/class/drm/renderD12"+string(rune('8'+i))+"/device/driver"] = "-> ../../../../bus/pci/drivers/" + d
	}
	return f
}

const explainGate = "`p2pcheck explain P2P-NV-GATE P2P-NV-FORCEPCIE`"

// Evidence in, cause and remedy out. A row whose evidence differs from the one above
// must have another answer.
func TestFind(t *testing.T) {
	// GB200 and GB300: g_nv_name_released.h. Coherent GPUs skip the normal gate.
	gb200 := gpu(gpuAt, "0x2941", "7").with(gpu(gpu2At, "0x2941", "9")).with(nic("21"))
	h100 := gpu(gpuAt, "0x2330", "7").with(nic("21"))
	graceHost := tree{"sys/bus/pci/devices/0000:00:00.0/vendor": "0x10de", "sys/bus/pci/devices/0000:00:00.0/device": "0x22b1"}
	unread := errors.New("read /sys/kernel/debug/dma_buf/bufinfo: EACCES")
	for _, row := range []struct {
		name    string
		files   tree
		ev      Evidence
		known   bool
		cause   Cause
		detail  []string
		remedy  []string
		mustNot []string // in neither
	}{
		// nvidia-drm: NVIDIA/open-gpu-kernel-modules#1130, #1037, #1302;
		// __nv_drm_gem_nvkms_memory_prime_get_sg_table.
		{
			name: "nvidia-drm, seen by a trace", ev: Evidence{Errno: unix.ENOMEM, Exporter: "drm", Module: "nvidia_drm"},
			known: true, cause: VideoMemory, detail: []string{"exporter nvidia-drm does not map video memory", "memory is not short"},
			remedy: []string{"allocate with CUDA", "cuMemGetHandleForAddressRange"}, mustNot: []string{"free memory", "register less"},
		},
		{
			name: "nvidia-drm, the only DRM driver", files: drmNodes("nvidia", "nvidia"), ev: Evidence{Errno: unix.ENOMEM, Exporter: "drm"},
			known: true, cause: VideoMemory, detail: []string{"exporter nvidia-drm (the machine's only DRM driver)"},
			remedy: []string{"cuMemGetHandleForAddressRange"}, mustNot: []string{"free memory", "register less"},
		},
		{
			name: "nvidia-drm or amdgpu", files: drmNodes("nvidia", "amdgpu"), ev: Evidence{Errno: unix.ENOMEM, Exporter: "drm"},
			known: true, cause: Open, detail: []string{"of which this machine has nvidia-drm and amdgpu", "if it is nvidia-drm's"},
			remedy: []string{"cuMemGetHandleForAddressRange", "otherwise free memory", "dmabuf-reg explain"},
		},
		{
			name: "nvidia-drm or amdgpu, and a trace has shown amdgpu", files: drmNodes("nvidia", "amdgpu"),
			ev: Evidence{Errno: unix.ENOMEM, Exporter: "drm", Module: "amdgpu"},
		},
		{name: "amdgpu alone", files: drmNodes("amdgpu"), ev: Evidence{Errno: unix.ENOMEM, Exporter: "drm"}},
		{name: "DRM drivers not read", ev: Evidence{Errno: unix.ENOMEM, Exporter: "drm"}},
		{name: "a heap, beside nvidia-drm", files: drmNodes("nvidia"), ev: Evidence{Errno: unix.ENOMEM, Exporter: "system"}},
		{name: "exporter not read", files: drmNodes("nvidia"), ev: Evidence{Errno: unix.ENOMEM}},
		{
			name: "a DRM device without a driver that can be read", files: drmNodes("nvidia").with(tree{"sys/class/drm/card7/dev": "226:7"}),
			ev: Evidence{Errno: unix.ENOMEM, Exporter: "drm"}, known: true, cause: Open, detail: []string{"if it is nvidia-drm's"},
		},
		// nv_drm_gem_prime_get_sg_table: objects without the operation.
		{
			name: "nvidia-drm, 524", ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "drm", Module: "nvidia_drm"},
			known: true, cause: VideoMemory, remedy: []string{"cuMemGetHandleForAddressRange"}, mustNot: []string{"memory is not short", "P2P-NV-GATE"},
		},
		// drm_gem_map_attach; NVIDIA/open-gpu-kernel-modules pull request 1317.
		{
			name: "nvidia-drm, ENOSYS", ev: Evidence{Errno: unix.ENOSYS, Exporter: "drm", Module: "nvidia_drm"},
			known: true, cause: VideoMemory, remedy: []string{"cuMemGetHandleForAddressRange"},
		},

		// NVIDIA's gate: nv_dma_buf_attach; ai-dynamo/nixl#1694, #1854,
		// Azure/azhpc-images#589, openucx/ucx#11571.
		{
			name: "GB200, 580", files: gb200.with(driver("580.95.05", "0")), ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", NIC: "mlx5_0", Function: nicAt},
			known: true, cause: Gate,
			detail:  []string{"gate in NVIDIA's driver 580.95.05", "exported for PCIe", "mlx5_0 is in group 21, the GPUs in 7 and 9", "NVRM: dma-buf attach failed: topology not supported for mapping type FORCE_PCIE"},
			remedy:  []string{"export without that flag", "one IOMMU group", "load nvidia with NVreg_GrdmaPciTopoCheckOverride=1", explainGate},
			mustNot: []string{"memory of another kind", "another NIC", "PCI topology not supported for dma-buf", "since driver 595"},
		},
		{
			name: "GB300, 595: the parameter does not count", files: gpu(gpuAt, "0x31c2", "7").with(nic("21")).with(driver("595.45.04", "0")),
			ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", Function: nicAt}, known: true, cause: Gate,
			remedy: []string{"export without that flag", "NVreg_GrdmaPciTopoCheckOverride does not count for this mapping since driver 595", explainGate}, mustNot: []string{"=1"},
		},
		{
			name: "GB300, 595, with the parameter", files: gpu(gpuAt, "0x31c2", "7").with(nic("21")).with(driver("595.45.04", "1")),
			ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", Function: nicAt}, known: true, cause: Gate,
			detail: []string{"exported for PCIe"}, remedy: []string{"does not count for this mapping since driver 595"},
		},
		{
			name: "GB200, 590, the parameter lets all in", files: gb200.with(driver("590.48.01", "1")), ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", Function: nicAt},
			known: true, cause: Gate, detail: []string{"let this NIC attach"}, remedy: []string{"NVRM: dma-buf attach failed:", explainGate}, mustNot: []string{"=1", "exported for PCIe"},
		},
		{
			name: "GB200, 590, the parameter lets none in", files: gb200.with(driver("590.48.01", "2")), ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", Function: nicAt},
			known: true, cause: Gate, detail: []string{"=2 refuses to every importer"}, remedy: []string{"set the parameter to 0"},
		},
		{
			name: "GB200, one group", files: gpu(gpuAt, "0x2941", "7").with(nic("7")).with(driver("580.95.05", "0")),
			ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", Function: nicAt}, known: true, cause: Gate, detail: []string{"let this NIC attach"},
			mustNot: []string{"exported for PCIe"},
		},
		{
			name: "GB200, driver's version not read", files: gb200, ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", Function: nicAt},
			known: true, cause: Gate, detail: []string{"exported for PCIe"}, remedy: []string{"up to driver 590, load nvidia with NVreg_GrdmaPciTopoCheckOverride=1"},
		},
		{
			name: "H100 on x86: no chipset of the list", files: h100.with(driver("580.95.05", "0")), ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", Function: nicAt},
			known: true, cause: Gate, detail: []string{"exported for PCIe", "no GPU here is one"}, remedy: []string{"export without that flag", explainGate},
			mustNot: []string{"IOMMU group:", "=1", "chipset"},
		},
		{
			name: "H100 in a Grace host", files: h100.with(graceHost).with(driver("580.95.05", "0")), ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", Function: nicAt},
			known: true, cause: Gate, detail: []string{noForcePCIe, noTopology, "on this chipset"},
			remedy: []string{"export without that flag", "a NIC below the GPU's switch", "NVreg_GrdmaPciTopoCheckOverride=1", explainGate},
		},
		{
			name: "H100 in a Grace host, 595 with the parameter", files: h100.with(graceHost).with(driver("595.45.04", "1")),
			ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", Function: nicAt}, known: true, cause: Gate,
			detail: []string{"exported for PCIe"}, mustNot: []string{noTopology},
		},
		{
			name: "the parameter denies, on x86", files: h100.with(driver("580.95.05", "2")), ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", Function: nicAt},
			known: true, cause: Gate, detail: []string{"is 2, which refuses every importer"}, remedy: []string{"set it to 0"},
		},
		{
			name: "nothing of the machine is read", ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf"},
			known: true, cause: Gate, detail: []string{noForcePCIe, noTopology, "on Grace, Altra and AmpereOne"}, remedy: []string{"export without that flag", explainGate},
		},
		{
			name: "a software NIC", files: h100.with(driver("580.95.05", "0")), ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nv_dmabuf", NIC: "rxe0", Software: true},
			known: true, cause: Gate, detail: []string{"rxe0 takes no memory without pages", noMMIO},
		},
		{
			name: "a driver before 580 has no gate at attach", files: h100.with(driver("570.211.01", "0")), ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "nvidia"},
			known: true, cause: Open, detail: []string{"began with driver 580"}, mustNot: []string{"export without"},
		},
		{name: "524 of another exporter", files: h100.with(driver("580.95.05", "0")), ev: Evidence{Errno: errno.ENOTSUPP, Exporter: "udmabuf"}},

		// nv_dma_buf_map returns NULL.
		{
			name: "nvidia, ENOMEM, 580", files: driver("580.95.05", "0"), ev: Evidence{Errno: unix.ENOMEM, Exporter: "nv_dmabuf"},
			known: true, cause: NoAddresses, detail: []string{"NVIDIA's driver 580.95.05", "BAR 1"}, remedy: []string{"nvidia-smi -q -d MEMORY"}, mustNot: []string{"FORCE_PCIE", "P2P support", "free memory"},
		},
		{
			name: "nvidia, ENOMEM, 570", files: driver("570.211.01", "0"), ev: Evidence{Errno: unix.ENOMEM, Exporter: "nvidia"},
			known: true, cause: NoAddresses, detail: []string{"BAR 1", "FORCE_PCIE", "no P2P support"}, remedy: []string{"export without CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE"},
		},
		{
			name: "nvidia, ENOMEM, 550", files: driver("550.54.14", "0"), ev: Evidence{Errno: unix.ENOMEM, Exporter: "nvidia"},
			known: true, cause: NoAddresses, detail: []string{"BAR 1", "no P2P support"}, mustNot: []string{"FORCE_PCIE"},
		},

		// amdgpu_dma_buf_pin, xe_dma_buf_pin.
		{
			name: "pinned for another NIC", files: drmNodes("amdgpu"), ev: Evidence{Errno: unix.EINVAL, Exporter: "drm", NIC: "rxe1", Attached: []string{"rxe0"}},
			known: true, cause: Pinned, detail: []string{"attached to rxe0, too", "rxe1 does not reach"},
			remedy: []string{"only with the NIC that reaches the GPU", "end the other registration", "a buffer for each NIC"}, mustNot: []string{"kernel log"},
		},
		{
			name: "pinned for two others, of a driver that is not known", files: drmNodes("xe", "virtio_gpu"),
			ev: Evidence{Errno: unix.EINVAL, Exporter: "drm", Attached: []string{"rxe0", "0000:05:00.0"}, Unread: unread}, known: true, cause: Pinned,
			detail: []string{"attached to rxe0 and 0000:05:00.0, too"},
		},
		{
			name: "no other device", files: drmNodes("amdgpu"), ev: Evidence{Errno: unix.EINVAL, Exporter: "drm"},
			known: true, cause: Open, detail: []string{"no other device has the buffer attached"}, remedy: []string{"dmesg", "dmabuf-reg explain"}, mustNot: []string{"other registration"},
		},
		{
			name: "other devices not read", files: drmNodes("amdgpu"), ev: Evidence{Errno: unix.EINVAL, Exporter: "drm", Unread: unread},
			known: true, cause: Open, detail: []string{"could not be read", "bufinfo"}, remedy: []string{"if it is registered with another NIC", "otherwise see the kernel log"},
		},
		{
			name: "the pin was seen refusing, without peer-to-peer", ev: Evidence{Errno: unix.EINVAL, Exporter: "drm", Module: "xe", AtPin: true, NoPeer: true, Unread: unread},
			known: true, cause: Pinned, detail: []string{"another importer has pinned"},
		},
		{
			name: "the pin was seen refusing a peer", ev: Evidence{Errno: unix.EINVAL, Exporter: "drm", Module: "xe", AtPin: true, Unread: unread},
			known: true, cause: Open,
		},
		{
			name: "EBUSY of an older amdgpu", files: drmNodes("amdgpu"), ev: Evidence{Errno: unix.EBUSY, Exporter: "drm", Attached: []string{"rxe0"}},
			known: true, cause: Pinned,
		},
		{name: "a heap does not move", ev: Evidence{Errno: unix.EINVAL, Exporter: "system", Attached: []string{"rxe0"}}},
		{name: "ast does not move", files: drmNodes("ast"), ev: Evidence{Errno: unix.EINVAL, Exporter: "drm", Attached: []string{"rxe0"}}},
		{name: "nvidia does not move", ev: Evidence{Errno: unix.EINVAL, Exporter: "nv_dmabuf", Attached: []string{"rxe0"}}},

		// vfio_pci_dma_buf_map (dma_buf_phys_vec_to_sgt), vfio_pci_dma_buf_attach.
		{
			name: "vfio, EINVAL", ev: Evidence{Errno: unix.EINVAL, Exporter: "vfio_pci_core", Attached: []string{"rxe0"}},
			known: true, cause: Unreachable, detail: []string{"no way for peer-to-peer"}, remedy: []string{"p2pcheck"}, mustNot: []string{"other registration"},
		},
		{
			name: "vfio, EOPNOTSUPP", ev: Evidence{Errno: unix.EOPNOTSUPP, Exporter: "vfio_pci_core"},
			known: true, cause: NotForIt, detail: []string{"give it back when asked"}, remedy: []string{"mlx5"},
		},
		// xe_dma_buf_attach, i915_gem_dmabuf_attach.
		{
			name: "xe, VRAM only", files: drmNodes("xe"), ev: Evidence{Errno: unix.EOPNOTSUPP, Exporter: "drm"},
			known: true, cause: NotForIt, detail: []string{"exporter xe", "VRAM only"}, remedy: []string{"system memory as well"},
		},
		{
			name: "i915, local memory only", ev: Evidence{Errno: unix.EOPNOTSUPP, Exporter: "i915"},
			known: true, cause: NotForIt, remedy: []string{"system memory among its placements"},
		},
		// rxe_mr_init_dmabuf of the test bed's series: dma_buf_vmap.
		{
			name: "no vmap for a software NIC", ev: Evidence{Errno: unix.EOPNOTSUPP, Exporter: "nv_dmabuf", NIC: "rxe0", Software: true},
			known: true, cause: NotForIt, detail: []string{"rxe0 is a software NIC", "vmap"},
		},
		{name: "DRM drivers have vmap", files: drmNodes("amdgpu"), ev: Evidence{Errno: unix.EOPNOTSUPP, Exporter: "drm", NIC: "rxe0", Software: true}},
		{name: "EOPNOTSUPP of udmabuf and a NIC in hardware", ev: Evidence{Errno: unix.EOPNOTSUPP, Exporter: "udmabuf"}},
		// vfio_pci_dma_buf_map, amdgpu's and softgpu's revoked buffers.
		{
			name: "revoked", ev: Evidence{Errno: unix.ENODEV, Exporter: "vfio_pci_core"},
			known: true, cause: Gone, detail: []string{"the NIC answers, so the exporter refused"}, remedy: []string{"allocate the memory anew"},
		},
		// __dma_map_sg_attrs, of memory that P2PDMA maps for no such importer.
		{name: "EREMOTEIO", ev: Evidence{Errno: unix.EREMOTEIO, Exporter: "drm"}, known: true, cause: Unreachable, remedy: []string{"p2pcheck"}},
		{name: "no rule", ev: Evidence{Errno: unix.EXFULL, Exporter: "drm"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.ev.Machine = row.files.machine(t)
			f, known := row.ev.Find()
			if known != row.known || f.Cause != row.cause {
				t.Fatalf("known %v, cause %v, want %v, %v: %+v", known, f.Cause, row.known, row.cause, f)
			}
			if known && (f.Detail == "" || f.Remedy == "") {
				t.Errorf("no words: %+v", f)
			}
			for _, want := range row.detail {
				if !strings.Contains(f.Detail, want) {
					t.Errorf("detail %q, want %q in it", f.Detail, want)
				}
			}
			for _, want := range row.remedy {
				if !strings.Contains(f.Remedy, want) {
					t.Errorf("remedy %q, want %q in it", f.Remedy, want)
				}
			}
			for _, not := range row.mustNot {
				if strings.Contains(f.Detail+f.Remedy, not) {
					t.Errorf("%q is in it: %+v", not, f)
				}
			}
		})
	}
}
