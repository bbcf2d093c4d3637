// SPDX-License-Identifier: Apache-2.0

package product

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/placement"
)

// row is one product and what is known of it.
type row struct {
	name    string
	facts   Facts
	gives   Tri
	dmabuf  Tri
	peermem Tri
	line    string // a part of Answer.Line
	source  string // of the expectation
}

// nv is a GPU of NVIDIA's with the open modules on a machine that is not a guest.
func nv(device uint16, name string, change ...func(*Facts)) Facts {
	f := Facts{
		Vendor: vendorNVIDIA, Device: device, Driver: "nvidia", Model: name, ModelRead: name != "",
		Series: 580, OpenModules: Yes, Virtual: No, Arch: "amd64",
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func guest(f *Facts)        { f.Virtual = Yes }
func perhapsGuest(f *Facts) { f.Virtual = Unknown }
func series(n int) func(*Facts) {
	return func(f *Facts) { f.Series = n }
}

func amdGPU(device uint16, vram, visible uint64) Facts {
	return Facts{
		Vendor: vendorAMD, Device: device, Driver: "amdgpu", Virtual: No,
		VRAM: Size{vram, true}, VisibleVRAM: Size{visible, true},
	}
}

func intelGPU(device uint16, bar uint64) Facts {
	return Facts{Vendor: vendorIntel, Device: device, Driver: "xe", Virtual: No, BAR: Size{bar, bar > 0}}
}

// Sources of what the rows expect.
const (
	readme   = "NVIDIA/gdrcopy README.md, #293"
	vGPUDocs = "NVIDIA AI Enterprise, vGPU, GPUDirect RDMA and GPUDirect Storage"
	turing   = "open-gpu-kernel-modules README.md: Turing and newer"
)

// byName are NVIDIA GPUs whose model was read.
var byName = []row{
	{"5090", nv(0x2b85, "NVIDIA GeForce RTX 5090"), No, No, No, "GeForce", "aikitoria/open-gpu-kernel-modules#20"},
	{"4090", nv(0x2684, "NVIDIA GeForce RTX 4090"), No, No, No, "GeForce", "kvcache-ai/Mooncake#983"},
	{"3090", nv(0x2204, "NVIDIA GeForce RTX 3090"), No, No, No, "GeForce", "tinygrad/open-gpu-kernel-modules#46"},
	{"2080 Ti", nv(0x1e07, "GeForce RTX 2080 Ti"), No, No, No, "GeForce", "NVIDIA/gdrcopy#211"},
	{"laptop GeForce", nv(0x2757, "NVIDIA GeForce RTX 4090 Laptop GPU"), No, No, No, "GeForce", "NVIDIA/gdrcopy#211"},
	{"GeForce of a new id", nv(0x2bff, "NVIDIA GeForce RTX 6090"), No, No, No, "GeForce", "NVIDIA/gdrcopy#211"},
	{"GeForce vGPU", nv(0x1e37, "GeForce RTX T10-8", guest), No, No, No, "GeForce", namesOf595},
	{"GeForce with an A100's id", nv(0x20b0, "NVIDIA GeForce RTX 3080"), No, No, No, "GeForce", "NVIDIA/gdrcopy#211"},
	{"TITAN RTX", nv(0x1e02, "NVIDIA TITAN RTX"), Unknown, Unknown, Unknown, "TITAN", "Mellanox/nv_peer_memory#88"},
	{"TITAN V", nv(0x1d81, "NVIDIA TITAN V"), Unknown, Unknown, Unknown, "TITAN", "kaigai/nvme-kmod#5"},
	{"TITAN X", nv(0x1b00, "TITAN X (Pascal)"), Unknown, Unknown, Unknown, "TITAN", "NVIDIA/nccl#108"},
	{"CMP", nv(0x2082, "NVIDIA CMP 170HX"), Unknown, Unknown, Unknown, "mining", readme},
	{"P106-100", nv(0x1c07, "P106-100"), Unknown, Unknown, Unknown, "mining", readme},
	{"GB10", nv(0x2e12, "NVIDIA GB10"), No, No, No, "integrated", "DGX Spark Porting Guide"},
	{"N1X", nv(0x2e03, "NVIDIA RTX Spark N1X"), No, No, No, "integrated", "DGX Spark Porting Guide"},
	{"Thor", nv(0x2b00, "NVIDIA Thor"), No, No, No, "integrated", "CUDA GPUDirect RDMA guide, Changes in CUDA 13.0"},
	{"Orin", Facts{Vendor: 0, Model: "Orin (nvgpu)", ModelRead: true}, No, No, No, "integrated", "CUDA GPUDirect RDMA guide, Porting to Tegra"},
	{"DRIVE A100", nv(0x20bb, "NVIDIA DRIVE-A100-PROD"), Unknown, Unknown, Unknown, "DRIVE", pciIDs},
	{"DRIVE P2021", nv(0x29bb, "NVIDIA DRIVE P2021"), Unknown, Unknown, Unknown, "DRIVE", namesOf595},
	{"DGX Display", nv(0x1fb0, "NVIDIA DGX Display"), Unknown, Unknown, Unknown, "OEM", namesOf595},
	{"Matrox", nv(0x1f76, "Matrox D-Series D2480"), Unknown, Unknown, Unknown, "OEM", namesOf595},

	{"A100 SXM4", nv(0x20b0, "NVIDIA A100-SXM4-40GB"), Yes, Yes, Yes, "data centre", readme},
	{"A100 SXM4 80", nv(0x20b2, "NVIDIA A100-SXM4-80GB"), Yes, Yes, Yes, "data centre", readme},
	{"A100 of an older driver", nv(0x20b2, "A100-SXM4-80GB"), Yes, Yes, Yes, "data centre", readme},
	{"A100 board", nv(0x20b0, "NVIDIA A100-PG509-200"), Yes, Yes, Yes, "data centre", readme},
	{"A100 PCIe", nv(0x20b5, "NVIDIA A100 80GB PCIe"), Yes, Yes, Yes, "data centre", readme},
	{"A100X", nv(0x20b8, "NVIDIA A100X"), Yes, Yes, Yes, "data centre", readme},
	{"A800", nv(0x20f3, "NVIDIA A800-SXM4-80GB"), Yes, Yes, Yes, "data centre", readme},
	{"A30", nv(0x20b7, "NVIDIA A30"), Yes, Yes, Yes, "data centre", readme},
	{"A10", nv(0x2236, "NVIDIA A10"), Yes, Yes, Yes, "data centre", "NVIDIA/gdrcopy#266"},
	{"A10G", nv(0x2237, "NVIDIA A10G"), Yes, Yes, Yes, "data centre", readme},
	{"A40", nv(0x2235, "NVIDIA A40"), Yes, Yes, Yes, "data centre", readme},
	{"A16", nv(0x25b6, "NVIDIA A16"), Yes, Yes, Yes, "data centre", readme},
	{"A2", nv(0x25b6, "NVIDIA A2"), Yes, Yes, Yes, "data centre", readme},
	{"H100 SXM", nv(0x2330, "NVIDIA H100 80GB HBM3"), Yes, Yes, Yes, "data centre", "linux-rdma/perftest#280"},
	{"H100 PCIe", nv(0x2331, "NVIDIA H100 PCIe"), Yes, Yes, Yes, "data centre", readme},
	{"H100 NVL", nv(0x2321, "NVIDIA H100 NVL"), Yes, Yes, Yes, "data centre", readme},
	{"H800", nv(0x2324, "NVIDIA H800"), Yes, Yes, Yes, "data centre", readme},
	{"H200", nv(0x2335, "NVIDIA H200"), Yes, Yes, Yes, "data centre", readme},
	{"H200 NVL", nv(0x233b, "NVIDIA H200 NVL"), Yes, Yes, Yes, "data centre", "openucx/ucx#10955"},
	{"H20", nv(0x2329, "NVIDIA H20"), Yes, Yes, Yes, "data centre", "openucx/ucx#11695"},
	{"H20-3e is no vGPU", nv(0x232c, "NVIDIA H20-3e"), Yes, Yes, Yes, "data centre", namesOf595},
	{"GH200", nv(0x2342, "NVIDIA GH200 480GB"), Yes, Yes, Yes, "data centre", "NVIDIA/nccl#1579"},
	{"B200", nv(0x2901, "NVIDIA B200"), Yes, Yes, Yes, "data centre", readme},
	{"B300", nv(0x3182, "NVIDIA B300 SXM6 AC"), Yes, Yes, Yes, "data centre", readme},
	{"GB200", nv(0x2941, "NVIDIA GB200"), Yes, Yes, Yes, "data centre", "openucx/ucx#11571"},
	{"GB300", nv(0x31c2, "NVIDIA GB300"), Yes, Yes, Yes, "data centre", "Azure/azhpc-images#589"},
	{"L4", nv(0x27b8, "NVIDIA L4"), Yes, Yes, Yes, "data centre", "ofiwg/libfabric#12409"},
	{"L40", nv(0x26b5, "NVIDIA L40"), Yes, Yes, Yes, "data centre", readme},
	{"L40S", nv(0x26b9, "NVIDIA L40S"), Yes, Yes, Yes, "data centre", "openucx/ucx#11121"},
	{"L20", nv(0x26ba, "NVIDIA L20"), Yes, Yes, Yes, "data centre", readme},
	{"T4", nv(0x1eb8, "Tesla T4"), Yes, Yes, Yes, "data centre", "Mellanox/nv_peer_memory#101"},
	{"V100", nv(0x1db5, "Tesla V100-SXM2-32GB"), Yes, No, Yes, "before Turing", turing + "; Mellanox/nv_peer_memory#101"},
	{"V100S", nv(0x1df6, "Tesla V100S-PCIE-32GB"), Yes, No, Yes, "before Turing", turing},
	{"P100", nv(0x15f8, "Tesla P100-PCIE-16GB"), Yes, No, Yes, "before Turing", turing + "; Mellanox/nv_peer_memory#27"},
	{"P100 without Tesla", nv(0x15f8, "NVIDIA P100-PCIE-16GB"), Yes, No, Yes, "before Turing", turing},
	{"K40m", nv(0x1023, "Tesla K40m"), Yes, No, Yes, "before Turing", turing + "; NVIDIA/gdrcopy README.md"},
	{"Fermi", nv(0x1091, "Tesla M2090"), Unknown, Unknown, Unknown, "not listed", "CUDA GPUDirect RDMA guide: Kepler and newer"},

	{"RTX A6000", nv(0x2230, "NVIDIA RTX A6000"), Yes, Yes, Yes, "RTX", readme},
	{"RTX A5000", nv(0x2231, "NVIDIA RTX A5000"), Yes, Yes, Yes, "RTX", "Mellanox/network-operator#2064"},
	{"RTX 6000 Ada", nv(0x26b1, "NVIDIA RTX 6000 Ada Generation"), Yes, Yes, Yes, "RTX", readme},
	{"RTX 4000 SFF Ada", nv(0x27b0, "NVIDIA RTX 4000 SFF Ada Generation"), Yes, Yes, Yes, "RTX", readme},
	{"RTX 2000E Ada", nv(0x28b0, "NVIDIA RTX 2000E Ada Generation"), Yes, Yes, Yes, "RTX", readme},
	{"RTX PRO 6000 WS", nv(0x2bb1, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"), Yes, Yes, Yes, "RTX", readme},
	{"RTX PRO 6000 Max-Q", nv(0x2bb4, "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"), Yes, Yes, Yes, "RTX", readme},
	{"RTX PRO 6000 Server", nv(0x2bb5, "NVIDIA RTX PRO 6000 Blackwell Server Edition"), Yes, Yes, Yes, "RTX", readme},
	{"RTX PRO 5000", nv(0x2bb3, "NVIDIA RTX PRO 5000 Blackwell"), Yes, Yes, Yes, "RTX", "NVIDIA/open-gpu-kernel-modules#1130"},
	{"RTX 6000D", nv(0x2bb9, "NVIDIA RTX 6000D"), Yes, Yes, Yes, "RTX", namesOf595},
	{"T1000", nv(0x1ff0, "NVIDIA T1000 8GB"), Yes, Yes, Yes, "RTX", readme},
	{"Quadro RTX 8000", nv(0x1e30, "Quadro RTX 8000"), Yes, Yes, Yes, "RTX", readme},
	{"Quadro P6000", nv(0x1b30, "Quadro P6000"), Yes, No, Yes, "before Turing", turing},
	{"Quadro K1200", nv(0x13bc, "Quadro K1200"), Yes, No, Yes, "before Turing", "kaigai/nvme-kmod#5"},
	{"Quadro GV100", nv(0x1dba, "Quadro GV100"), Yes, No, Yes, "before Turing", turing},
	{"laptop RTX", nv(0x24b6, "NVIDIA RTX A5000 Laptop GPU"), Unknown, Unknown, Unknown, "laptop", readme},
	{"laptop Quadro", nv(0x1fb8, "Quadro T2000"), Unknown, Unknown, Unknown, "laptop", pciIDs + " (TU117GLM)"},
	{"embedded RTX", nv(0x2770, "NVIDIA RTX 5000 Ada Generation Embedded GPU"), Unknown, Unknown, Unknown, "laptop", readme},
	{"a name of tomorrow", nv(0x3500, "NVIDIA R100"), Unknown, Unknown, Unknown, "not listed", "no source"},

	{"C type, 580", nv(0x2321, "NVIDIA H100L-94C", guest, func(f *Facts) { f.Confidential = No }), Yes, Yes, Unknown, "vGPU for Compute", vGPUDocs},
	{"C type, 575", nv(0x2321, "NVIDIA H100L-94C", guest, series(575)), Unknown, No, Unknown, "vGPU for Compute", "open-gpu-kernel-modules 575.51.02"},
	{"C type of MIG", nv(0x20b2, "GRID A100DX-2-20C", guest), Yes, Yes, Unknown, "vGPU for Compute", vGPUDocs},
	{"C type with media", nv(0x2941, "NVIDIA GB200-1-24CME", guest), Yes, Yes, Unknown, "vGPU for Compute", vGPUDocs},
	{"C type without SR-IOV", nv(0x1eb8, "GRID T4-16C", guest), Unknown, Unknown, Unknown, "vGPU", vGPUDocs},
	{"Q type", nv(0x2235, "NVIDIA A40-4Q", guest), Unknown, Unknown, Unknown, "vGPU", vGPUDocs},
	{"Q type, 550", nv(0x2235, "NVIDIA A40-4Q", guest, series(550)), Unknown, No, Unknown, "vGPU", "open-gpu-kernel-modules 575.51.02"},
	{"B type", nv(0x26b9, "NVIDIA L40S-2B", guest), Unknown, Unknown, Unknown, "vGPU", vGPUDocs},
	{"type without a letter", nv(0x2237, "NVIDIA A10G-8", guest), Unknown, Unknown, Unknown, "vGPU", vGPUDocs},
	{"Blackwell type", nv(0x2bb5, "NVIDIA RTX Pro 6000 Blackwell DC-48Q", guest), Unknown, Unknown, Unknown, "vGPU", vGPUDocs},
	{"GRID K520", nv(0x118a, "GRID K520", guest), Unknown, Unknown, Unknown, "vGPU", pciIDs},
}

// byDevice are NVIDIA GPUs whose model was not read, or says nothing.
var byDevice = []row{
	{"H100", nv(0x2330, ""), Yes, Yes, Yes, "data centre", pciIDs},
	{"H100 whose name is no product", nv(0x2330, "NVIDIA GPU"), Yes, Yes, Yes, "data centre", "siderolabs/talos#12021"},
	{"H100 that the driver does not name", nv(0x2330, "Unknown"), Yes, Yes, Yes, "data centre", "open-gpu-kernel-modules osapi.c rm_get_device_name()"},
	{"RTX 2000 Ada", nv(0x28b0, "NVIDIA GPU"), Yes, Yes, Yes, "RTX", "NVIDIA/open-gpu-kernel-modules#1324"},
	{"L40S", nv(0x26b9, ""), Yes, Yes, Yes, "data centre", pciIDs},
	{"V100", nv(0x1db6, ""), Yes, No, Yes, "before Turing", pciIDs},
	{"GB300 MaxQ", nv(0x31a1, ""), Yes, Yes, Yes, "data centre", pciIDs},
	{"B100", nv(0x2920, ""), Yes, Yes, Yes, "data centre", pciIDs},
	{"4090", nv(0x2684, ""), No, No, No, "GeForce", namesOf595},
	{"5070 in a guest", nv(0x2f04, "", guest), No, No, No, "GeForce", namesOf595},
	{"GB10", nv(0x2e12, ""), No, No, No, "integrated", namesOf595},
	{"GB20B of a new board", nv(0x2e2a, "Unknown"), No, No, No, "integrated", pciIDs},
	{"an id beside GB10's", nv(0x2e11, ""), Unknown, Unknown, Unknown, "not listed", "no source"},
	{"an id beside H100's", nv(0x2332, ""), Unknown, Unknown, Unknown, "not listed", "no source"},
	{"GH100 without a name", nv(0x2343, ""), Unknown, Unknown, Unknown, "not listed", pciIDs},
	{"H100 or a part of it", nv(0x2330, "", guest), Unknown, Unknown, Unknown, "GPU or vGPU", namesOf595},
	{"H100, guest or not", nv(0x2330, "", perhapsGuest), Unknown, Unknown, Unknown, "GPU or vGPU", namesOf595},
	{"H100 without a product's name in a guest", nv(0x2330, "NVIDIA GPU", guest), Unknown, Unknown, Unknown, "GPU or vGPU", namesOf595},
	{"T10 and GeForce share an id", nv(0x1e37, ""), Unknown, Unknown, Unknown, "not listed", namesOf595},
	{"Grace's root port", nv(0x22b1, ""), Unknown, Unknown, Unknown, "not listed", "open-gpu-kernel-modules nvcst.h"},
	{"integrated, not listed", nv(0x2aff, "", func(f *Facts) { f.Integrated = Yes }), No, No, No, "integrated", "open-gpu-kernel-modules osinit.c bGpuArchIsZeroFb"},
	{"A4000's name, 4090's id", nv(0x2684, "NVIDIA RTX A4000"), Unknown, Unknown, Unknown, "contradictory", "open-gpu-kernel-modules osapi.c rm_get_device_name()"},
}

// others are GPUs of other vendors and other drivers.
var others = []row{
	{"W7900", amdGPU(0x7448, 48*gib, 48*gib), Yes, Yes, Yes, "Radeon PRO", "openucx/ucx#11540"},
	{"MI300X", amdGPU(0x74a1, 192*gib, 192*gib), Yes, Yes, Yes, "Instinct", "linux-rdma/perftest#309"},
	{"MI250X", amdGPU(0x7408, 64*gib, 64*gib), Yes, Yes, Yes, "Instinct", largeBAR},
	{"MI355X", amdGPU(0x75a3, 288*gib, 288*gib), Yes, Yes, Yes, "Instinct", "ROCm/mori#481"},
	{"R9700", amdGPU(0x7551, 32*gib, 32*gib), Yes, Yes, Yes, "Radeon PRO", "ROCm/legacy-rocm-build#5571"},
	{"7900 XTX", amdGPU(0x744c, 24*gib, 24*gib), Yes, Yes, Yes, "Radeon", largeBAR},
	{"7900 XTX, small BAR", amdGPU(0x744c, 24*gib, 256<<20), No, No, No, "Radeon", largeBAR},
	{"MI100, small BAR", amdGPU(0x738c, 32*gib, 256<<20), No, No, No, "Instinct", "ROCm/legacy-rocm-build#744"},
	{"WX 8200, visible VRAM not read", Facts{Vendor: vendorAMD, Device: 0x6868, Driver: "amdgpu", VRAM: Size{8 * gib, true}}, Unknown, Unknown, Unknown, "Radeon PRO", largeBAR},
	{"MI210, BAR of half the VRAM", Facts{Vendor: vendorAMD, Device: 0x740f, Driver: "amdgpu", VRAM: Size{64 * gib, true}, BAR: Size{32 * gib, true}}, No, No, No, "Instinct", largeBAR},
	{"MI50, BAR 256 MiB", Facts{Vendor: vendorAMD, Device: 0x66a1, Driver: "amdgpu", BAR: Size{256 << 20, true}}, No, No, No, "Instinct", "ROCm/ROCR-Runtime#355"},
	{"VRAM of 0", amdGPU(0x74a1, 0, 0), Unknown, Unknown, Unknown, "Instinct", "no source"},
	{"MI300A", Facts{Vendor: vendorAMD, Device: 0x74a0, Driver: "amdgpu"}, Yes, Yes, Unknown, "Instinct APU", "drivers/gpu/drm/amd/amdgpu/amdgpu_amdkfd_gpuvm.c (is_app_apu)"},
	{"Strix Halo", amdGPU(0x1586, 64*gib, 64*gib), Unknown, Unknown, Unknown, "integrated", "drivers/gpu/drm/amd/amdgpu/amdgpu_ttm.c (apu_prefer_gtt)"},
	{"AMD, not listed, may be an APU", amdGPU(0x7fff, 16*gib, 16*gib), Unknown, Unknown, Unknown, "not listed", "no source"},
	{"AMD, not listed, discrete", func() Facts { f := amdGPU(0x7fff, 16*gib, 16*gib); f.Integrated = No; return f }(), Yes, Yes, Yes, "not listed", largeBAR},
	{"AMD, not listed, small BAR", amdGPU(0x7fff, 16*gib, 256<<20), No, No, No, "not listed", largeBAR},
	{"radeon", Facts{Vendor: vendorAMD, Device: 0x6798, Driver: "radeon"}, No, No, No, "radeon", "drivers/gpu/drm/radeon/radeon_prime.c"},
	{"AMD with another driver", Facts{Vendor: vendorAMD, Device: 0x74a1, Driver: "amdgpu_next"}, Unknown, Unknown, Unknown, "AMD", "no source"},

	{"Max 1550", intelGPU(0x0bd5, 128*gib), Yes, Yes, Unknown, "Max", "ofiwg/libfabric fi_cxi"},
	{"Max 1550, BAR not read", intelGPU(0x0bd5, 0), Unknown, Unknown, Unknown, "Max", xeBAR},
	{"Max 1100", intelGPU(0x0bda, 64*gib), Yes, Yes, Unknown, "Max", "ofiwg/libfabric fi_cxi"},
	{"Flex 170", intelGPU(0x56c0, 16*gib), Unknown, Unknown, Unknown, "Flex", "no source"},
	{"Arc Pro B70", intelGPU(0xe223, 32*gib), Yes, Yes, Unknown, "Arc Pro", "intel/compute-runtime#935"},
	{"Arc Pro B60", intelGPU(0xe211, 32*gib), Yes, Yes, Unknown, "Arc Pro", "ScaleX-IO/uGDS#40"},
	{"Arc Pro B60, small BAR", intelGPU(0xe211, 256<<20), No, No, No, "Arc Pro", xeBAR},
	{"Arc Pro B60, half a BAR", intelGPU(0xe211, 16*gib), Unknown, Unknown, Unknown, "Arc Pro", xeBAR},
	{"Arc A770, small BAR", intelGPU(0x56a0, 256<<20), No, No, No, "Arc", xeBAR},
	{"Arc A770", intelGPU(0x56a0, 16*gib), Unknown, Unknown, Unknown, "Arc", "no source"},
	{"Arc B580", intelGPU(0xe20b, 16*gib), Unknown, Unknown, Unknown, "Arc", "no source"},
	{"Alder Lake", intelGPU(0x46a6, 256<<20), No, No, No, "integrated", intelIDs},
	{"Lunar Lake", intelGPU(0x64a0, 256<<20), No, No, No, "integrated", intelIDs},
	{"Intel, not listed", intelGPU(0x674c, 128*gib), Unknown, Unknown, Unknown, "not listed", "no source"},
	{"Intel, not listed, integrated", func() Facts { f := intelGPU(0x0166, 256<<20); f.Integrated = Yes; return f }(), No, No, No, "integrated", "drivers/gpu/drm/i915/i915_pci.c"},

	{"GPU of a guest, on the host", Facts{Vendor: vendorNVIDIA, Device: 0x2330, Driver: "vfio-pci"}, Yes, Yes, Unknown, "vfio-pci", "drivers/vfio/pci/vfio_pci_dmabuf.c"},
	{"GeForce of a guest, on the host", Facts{Vendor: vendorNVIDIA, Device: 0x2684, Driver: "vfio-pci"}, Yes, Yes, Unknown, "vfio-pci", "drivers/vfio/pci/vfio_pci_dmabuf.c"},
	{"nouveau", Facts{Vendor: vendorNVIDIA, Device: 0x2330, Driver: "nouveau"}, No, No, No, "nouveau", "drivers/gpu/drm/nouveau/nouveau_prime.c"},
	{"nova", Facts{Vendor: vendorNVIDIA, Device: 0x2330, Driver: "nova_core"}, Unknown, Unknown, Unknown, "NVIDIA", "no source"},
	{"Orin's driver", Facts{Driver: "nvgpu"}, No, No, No, "integrated", "Mellanox/nv_peer_memory#99"},
	{"Gaudi", Facts{Vendor: 0x1da3, Device: 0x1020, Driver: "habanalabs"}, Yes, Yes, Unknown, "Gaudi", "drivers/accel/habanalabs/common/memory.c"},
	{"the software GPU", Facts{Vendor: 0x1af4, Device: 0x1110, Driver: "softgpu"}, Yes, Yes, Unknown, "software", "kernel/softgpu/export.c"},
	{"a board's display", Facts{Vendor: 0x1a03, Device: 0x2000, Driver: "ast"}, Yes, Yes, Unknown, "display", "drivers/gpu/drm/ast/ast_drv.c"},
	{"another vendor", Facts{Vendor: 0x1ed5, Device: 0x0200, Driver: "mtgpu"}, Unknown, Unknown, Unknown, "not listed", "no source"},
	{"nothing read", Facts{}, Unknown, Unknown, Unknown, "not listed", "no source"},
}

// limits are facts that take a route away.
var limits = []row{
	{"ppc64le", nv(0x1db5, "Tesla V100-SXM2-32GB", func(f *Facts) { f.Arch = "ppc64le" }), Yes, No, Yes, "before Turing", "open-gpu-kernel-modules subdevice_ctrl_gpu_kernel.c"},
	{"ppc64le, T4", nv(0x1eb8, "Tesla T4", func(f *Facts) { f.Arch = "ppc64le" }), Yes, No, Yes, "data centre", "open-gpu-kernel-modules subdevice_ctrl_gpu_kernel.c"},
	{"driver before 515", nv(0x20b2, "NVIDIA A100-SXM4-80GB", series(470)), Yes, No, Yes, "data centre", "open-gpu-kernel-modules 515.43.04"},
	{"series not read", nv(0x20b2, "NVIDIA A100-SXM4-80GB", series(0)), Yes, Unknown, Yes, "data centre", "open-gpu-kernel-modules 515.43.04"},
	{"proprietary modules", nv(0x2330, "NVIDIA H100 80GB HBM3", func(f *Facts) { f.OpenModules = No }), Yes, No, Yes, "data centre", "microsoft/mscclpp#657"},
	{"no firmware, modules not read", nv(0x1eb8, "Tesla T4", func(f *Facts) { f.OpenModules, f.Firmware = Unknown, "N/A" }), Yes, Unknown, Yes, "data centre", "open-gpu-kernel-modules nv-procfs.c"},
	{"no firmware, open modules", nv(0x1eb8, "Tesla T4", func(f *Facts) { f.Firmware = "N/A" }), Yes, Yes, Yes, "data centre", "open-gpu-kernel-modules nv-procfs.c"},
	{"SLI", nv(0x1e30, "Quadro RTX 8000", func(f *Facts) { f.SLI = Yes }), Yes, No, Yes, "RTX", "open-gpu-kernel-modules osapi.c RmDmabufGetClientAndDevice()"},
	{"SLI before 570", nv(0x1e30, "Quadro RTX 8000", series(550), func(f *Facts) { f.SLI = Yes }), Yes, Unknown, Yes, "RTX", "open-gpu-kernel-modules 565.57.01 osapi.c"},
	{"MIG", nv(0x2330, "NVIDIA H100 80GB HBM3", func(f *Facts) { f.MIG = Yes }), Yes, Yes, Yes, "data centre", "MIG user guide; open-gpu-kernel-modules osapi.c"},
	{"confidential", nv(0x2330, "NVIDIA H100 80GB HBM3", guest, func(f *Facts) { f.Confidential = Yes }), No, No, No, "data centre", "NVIDIA/nvtrust#22"},
	{"protected mode", nv(0x20b2, "NVIDIA A100-SXM4-80GB", guest, func(f *Facts) { f.Confidential = Yes }), No, No, No, "data centre", "open-gpu-kernel-modules third_party_p2p.c"},
	{"confidential or not", nv(0x2330, "NVIDIA H100 80GB HBM3", guest), Unknown, Unknown, Unknown, "data centre", "NVIDIA/nvtrust#61"},
	{"not confidential", nv(0x2330, "NVIDIA H100 80GB HBM3", guest, func(f *Facts) { f.Confidential = No }), Yes, Yes, Yes, "data centre", "NVIDIA/nvtrust#61"},
	{"A100 passed through", nv(0x20b2, "NVIDIA A100-SXM4-80GB", guest), Yes, Yes, Yes, "data centre", readme},
	{"TITAN, driver before 515", nv(0x1e02, "NVIDIA TITAN RTX", series(470)), Unknown, No, Unknown, "TITAN", "open-gpu-kernel-modules 515.43.04"},
	{"driver not read", nv(0x2330, "NVIDIA H100 80GB HBM3", func(f *Facts) { f.Driver = "" }), Yes, Yes, Yes, "data centre", readme},
}

func all() (rows []row) {
	return append(append(append(append(rows, byName...), byDevice...), others...), limits...)
}

func TestOf(t *testing.T) {
	rows := all()
	if len(rows) < 80 {
		t.Errorf("%d rows, want 80 or more", len(rows))
	}
	for _, r := range rows {
		a := Of(r.facts)
		if a.Gives != r.gives || a.DMABuf != r.dmabuf || a.PeerMem != r.peermem || !strings.Contains(a.Line, r.line) {
			t.Errorf("%s: gives %v, dma-buf %v, peer memory %v, line %q; want %v, %v, %v, %q\n%+v",
				r.name, a.Gives, a.DMABuf, a.PeerMem, a.Line, r.gives, r.dmabuf, r.peermem, r.line, a)
		}
		complete(t, r.name, a)
		if r.source == "" {
			t.Errorf("%s: the row has no source", r.name)
		}
		if r.gives != Unknown && r.source == "no source" {
			t.Errorf("%s: %v without a source", r.name, r.gives)
		}
	}
}

// complete checks that an answer says all that it has to.
func complete(t *testing.T, name string, a Answer) {
	t.Helper()
	if a.Gives != either(a.DMABuf, a.PeerMem) {
		t.Errorf("%s: gives %v, dma-buf %v, peer memory %v", name, a.Gives, a.DMABuf, a.PeerMem)
	}
	if a.Why == "" || a.Source == "" || a.Line == "" {
		t.Errorf("%s: no reason, no source or no line: %+v", name, a)
	}
	if a.Gives == No && a.Change == "" {
		t.Errorf("%s: no remedy: %+v", name, a)
	}
	if a.PCIeMapping == Yes {
		t.Errorf("%s: the PCIe mapping is not a product's to grant", name)
	}
	for _, e := range a.Evidence {
		if e.File == "" || e.Value == "" {
			t.Errorf("%s: evidence without file or value: %+v", name, a)
		}
	}
	for _, s := range append([]string{a.Why, a.Read, a.Change}, a.Limits...) {
		if strings.HasSuffix(s, ".") || strings.ContainsAny(s, "\n\t") {
			t.Errorf("%s: %q is not a bare sentence", name, s)
		}
	}
}

// TestNameAlone repeats the rows that have a name with a device id that no table lists:
// the name decides by itself.
func TestNameAlone(t *testing.T) {
	for _, r := range byName {
		r.facts.Device = 0xffff
		if a := Of(r.facts); a.Gives != r.gives || a.DMABuf != r.dmabuf || a.PeerMem != r.peermem || !strings.Contains(a.Line, r.line) {
			t.Errorf("%s: gives %v, dma-buf %v, peer memory %v, line %q; want %v, %v, %v, %q",
				r.name, a.Gives, a.DMABuf, a.PeerMem, a.Line, r.gives, r.dmabuf, r.peermem, r.line)
		}
	}
}

// TestRemedies checks the remedies and reasons that the public reports ask for.
func TestRemedies(t *testing.T) {
	for _, c := range []struct {
		facts               Facts
		change, why, source string
	}{
		{nv(0x2b85, "NVIDIA GeForce RTX 5090"), "RTX PRO card", "NVIDIA GeForce RTX 5090", "gdrcopy#211"},
		{nv(0x2e12, "NVIDIA GB10"), "cudaHostAlloc", "NVIDIA GB10", "DGX Spark Porting Guide"},
		{nv(0x2e12, ""), "ibv_reg_mr", "10de:2e12", "DGX Spark Porting Guide"},
		{amdGPU(0x744c, 24*gib, 256<<20), "Resizable BAR", "visible 256 MiB", "HSA_AMD_P2P"},
		{nv(0x2330, "NVIDIA H100 80GB HBM3", func(f *Facts) { f.Confidential = Yes }), "turn confidential computing off", "confidential", "nvtrust"},
		{nv(0x2235, "NVIDIA A40-4Q", guest), "C series", "NVIDIA A40-4Q", "vGPU"},
		{nv(0x2321, "NVIDIA H100L-94C", guest, series(575), func(f *Facts) { f.Confidential = No }), "series 580", "series 575", "575.51.02"},
		{intelGPU(0x46a6, 0), "register host memory", "8086:46a6", "xe_pci.c"},
		{Facts{Vendor: vendorNVIDIA, Driver: "nouveau"}, "open kernel modules", "nouveau", "nouveau_prime.c"},
	} {
		a := Of(c.facts)
		if !strings.Contains(a.Change, c.change) || !strings.Contains(a.Why, c.why) || !strings.Contains(a.Source, c.source) {
			t.Errorf("%+v: want remedy %q, reason %q, source %q", a, c.change, c.why, c.source)
		}
	}
}

func TestLimitsAreSaid(t *testing.T) {
	a := Of(nv(0x1eb8, "Tesla T4", func(f *Facts) { f.OpenModules = No }))
	if len(a.Limits) != 1 || !strings.Contains(a.Limits[0], "proprietary") || !strings.Contains(a.Why, "data-centre") {
		t.Errorf("T4 with proprietary modules: %+v", a)
	}
	if a := Of(nv(0x2330, "NVIDIA H100 80GB HBM3")); len(a.Limits) != 0 {
		t.Errorf("H100: %q", a.Limits)
	}
}

func TestMIG(t *testing.T) {
	mig := nv(0x2941, "NVIDIA GB200", func(f *Facts) { f.MIG = Yes })
	if a := Of(mig); a.PCIeMapping != No || a.DMABuf != Yes {
		t.Errorf("with MIG: PCIe mapping %v, dma-buf %v", a.PCIeMapping, a.DMABuf)
	}
	mig.MIG = No
	if a := Of(mig); a.PCIeMapping != Unknown {
		t.Errorf("without MIG: PCIe mapping %v", a.PCIeMapping)
	}
}

func TestShared(t *testing.T) {
	for _, f := range []Facts{
		nv(0x2e12, "NVIDIA GB10"), {Vendor: vendorAMD, Device: 0x74a0}, amdGPU(0x1586, gib, gib), intelGPU(0x46a6, 0),
	} {
		if a := Of(f); a.Shared != Yes {
			t.Errorf("%04x:%04x: shared %v", f.Vendor, f.Device, a.Shared)
		}
	}
	if a := Of(nv(0x2330, "NVIDIA H100 80GB HBM3")); a.Shared == Yes {
		t.Error("an H100 has memory of its own")
	}
}

func TestTri(t *testing.T) {
	for tri, want := range map[Tri]placement.Answer{Unknown: placement.AnswerUnknown, Yes: placement.Yes, No: placement.No} {
		if placement.Answer(tri) != want {
			t.Errorf("%v is %d, placement's is %d", tri, tri, want)
		}
	}
	for _, c := range []struct{ a, b, both, either Tri }{
		{Yes, Yes, Yes, Yes}, {Yes, No, No, Yes}, {Yes, Unknown, Unknown, Yes},
		{No, No, No, No}, {No, Unknown, No, Unknown}, {Unknown, Unknown, Unknown, Unknown},
	} {
		if both(c.a, c.b) != c.both || both(c.b, c.a) != c.both || either(c.a, c.b) != c.either || either(c.b, c.a) != c.either {
			t.Errorf("%v, %v: both %v, either %v", c.a, c.b, both(c.a, c.b), either(c.a, c.b))
		}
	}
}
