// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// nvidia knows the answers of NVIDIA's two exporters: nvidia.ko, which exports
// the memory of CUDA, and nvidia-drm, which exports the GEM objects of Vulkan and
// GBM.
func (e *Evidence) nvidia(x exporter) (Finding, bool) {
	switch {
	case x.driver == "nvidia-drm":
		return e.videoMemory(x), true
	case x.driver == "" && slices.Contains(x.among, "nvidia-drm"):
		return e.perhapsVideoMemory(x), true
	case x.driver != "nvidia":
		return Finding{}, false
	case e.Errno == errno.ENOTSUPP && e.Exporter == "nvidia":
		return Finding{
			Open, "exporter nvidia answers 524 to no importer: that began with driver 580, whose buffers are called nv_dmabuf",
			traceIt,
		}, true
	case e.Errno == errno.ENOTSUPP:
		return e.gate(), true
	case e.Errno == unix.ENOMEM:
		return e.noAddresses(), true
	}
	return Finding{}, false
}

const byCUDA = "allocate with CUDA and export with cuMemGetHandleForAddressRange"

// videoMemory: __nv_drm_gem_nvkms_memory_prime_get_sg_table in
// nvidia-drm-gem-nvkms-memory.c answers ENOMEM for memory without pages
// (NVIDIA/open-gpu-kernel-modules#1130, #1037, #1302), nv_drm_gem_prime_get_sg_table
// in nvidia-drm-gem.c 524 for objects of other kinds; drm_gem_map_attach ENOSYS for
// an exporter that has no such function at all.
func (e *Evidence) videoMemory(x exporter) Finding {
	detail := e.name(x) + " does not map video memory for other devices"
	if e.Errno == unix.ENOMEM {
		detail += ": that is what its ENOMEM means, memory is not short"
	}
	return Finding{VideoMemory, detail, byCUDA}
}

func (e *Evidence) perhapsVideoMemory(x exporter) Finding {
	return Finding{
		Open,
		fmt.Sprintf("the buffer is of a DRM driver, of which this machine has %s: if it is nvidia-drm's, its %s means that it does not map video memory for other devices", list(x.among), errno.Name(e.Errno)),
		"if Vulkan or GBM made it on an NVIDIA GPU, " + byCUDA + "; otherwise " + e.otherwise() + "; " + traceIt,
	}
}

func (e *Evidence) otherwise() string {
	if e.Errno == unix.ENOMEM {
		return "free memory, or register less"
	}
	return "try memory of another kind"
}

// noAddresses: nv_dma_buf_map in nv-dmabuf.c returns NULL for whatever fails in
// it, and dma_buf_map_attachment makes ENOMEM of that.
func (e *Evidence) noAddresses() Finding {
	n, version, known := e.Machine.nvidiaSeries()
	old := e.Exporter == "nvidia" || known && n < 580
	may := []string{"BAR 1 of the GPU has no room left"}
	f := Finding{Cause: NoAddresses, Remedy: "see the NVRM lines of the kernel log; compare what is registered with BAR 1 (nvidia-smi -q -d MEMORY) and register less"}
	if old {
		may = append(may, fmt.Sprintf("%s takes no memory without pages (NVRM: failed to map dynamic attachment with no P2P support)", e.nic()))
	}
	if old && (!known || n >= 570) {
		may = append(may, "the buffer was exported for PCIe and GPU and NIC are not in one IOMMU group (NVRM: topology not supported for mapping type FORCE_PCIE)")
		f.Remedy += "; export without " + pcieFlag + ", or see `p2pcheck explain P2P-NV-FORCEPCIE`"
	}
	f.Detail = fmt.Sprintf("NVIDIA's driver%s gave the kernel no addresses, which makes ENOMEM of that: %s", version, strings.Join(may, ", or "))
	return f
}

const (
	pcieFlag = "CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE"
	override = "NVreg_GrdmaPciTopoCheckOverride"
)

// reason is one of the refusals of nv_dma_buf_attach.
type reason struct{ what, log, remedy string }

// gate picks among the refusals of nv_dma_buf_attach in nv-dmabuf.c, which all
// answer 524 and log different reasons. Its two rules are
// nv_pci_is_valid_topology_for_direct_pci and nv_grdma_pci_topology_supported in
// nv-pci.c of 580.65.06 to 595.45.04.
func (e *Evidence) gate() Finding {
	n, version, known := e.Machine.nvidiaSeries()
	cached, gpus := e.Machine.cachedGPUs()
	value := e.Machine.topoCheckOverride()
	asked := !known || n < 595 // the rule for FORCE_PCIE asks the parameter

	var may []reason
	if e.Software || e.NoPeer {
		may = append(may, reason{
			e.nic() + " takes no memory without pages", noMMIO, "use a NIC in hardware",
		})
	}
	group, together := e.groups(gpus)
	allowed := value == "1" && asked && known || together == yes && (value != "2" || !asked)
	switch {
	case cached == yes && allowed:
	case cached == yes && asked && value == "2":
		may = append(may, reason{
			"the buffer was exported for PCIe (" + pcieFlag + "), which the module parameter " + override + "=2 refuses to every importer", noForcePCIe,
			"export without that flag, or set the parameter to 0",
		})
	default:
		may = append(may, forcePCIe(cached, group, n, known, value))
	}
	switch listed := e.Machine.listedChipset(); {
	case cached == yes || value == "1":
	case value == "2":
		may = append(may, reason{"the module parameter " + override + " is 2, which refuses every importer", noTopology, "set it to 0"})
	case listed != no:
		where := "on Grace, Altra and AmpereOne"
		if listed == yes {
			where = "on this chipset"
		}
		may = append(may, reason{
			where + " the driver lets a NIC attach only if one bridge is above it and the GPU", noTopology,
			"use a NIC below the GPU's switch, or load nvidia with " + override + "=1, which lets every NIC attach",
		})
	}
	head := fmt.Sprintf("errno 524 is the answer of the gate in NVIDIA's driver%s", version)
	const tell = "see `p2pcheck explain P2P-NV-GATE P2P-NV-FORCEPCIE`"
	switch len(may) {
	case 0:
		return Finding{
			Gate, head + "; its parameters and the IOMMU groups, as far as they were read, let this NIC attach",
			"see the kernel log for the driver's reason (NVRM: dma-buf attach failed: ...); " + tell,
		}
	case 1:
		return Finding{
			Gate, fmt.Sprintf("%s: %s (kernel log: NVRM: dma-buf attach failed: %s)", head, may[0].what, may[0].log), may[0].remedy + "; " + tell,
		}
	}
	var what, remedy []string
	for _, r := range may {
		what = append(what, fmt.Sprintf("%q: %s", r.log, r.what))
		remedy = append(remedy, r.remedy)
	}
	return Finding{
		Gate, head + "; the kernel log has its reason behind \"NVRM: dma-buf attach failed:\": " + strings.Join(what, "; "),
		strings.Join(remedy, "; or ") + "; " + tell,
	}
}

// The reasons that the gate logs.
const (
	noTopology  = "PCI topology not supported for dma-buf"
	noForcePCIe = "topology not supported for mapping type FORCE_PCIE"
	noMMIO      = "importer unable to handle MMIO without struct page"
)

// forcePCIe is the refusal of a mapping for PCIe.
func forcePCIe(cached answer, group string, n int, known bool, value string) reason {
	r := reason{
		"the buffer was exported for PCIe (" + pcieFlag + "), which takes a GPU whose memory the CPU caches, and one IOMMU group of GPU and NIC",
		noForcePCIe,
		"export without that flag",
	}
	if cached == no {
		r.what = "the buffer was exported for PCIe (" + pcieFlag + "), which takes a GPU whose memory the CPU caches, and no GPU here is one"
		return r
	}
	r.what += group
	r.remedy += ", or bring GPU and NIC into one IOMMU group"
	switch {
	case known && n >= 595:
		r.remedy += " (" + override + " does not count for this mapping since driver 595)"
	case value == "1": // a driver since 595, or a GPU of another kind
	case known:
		r.remedy += ", or load nvidia with " + override + "=1"
	default:
		r.remedy += ", or, up to driver 590, load nvidia with " + override + "=1"
	}
	return r
}

// groups compares the IOMMU groups of the NIC and the GPUs.
func (e *Evidence) groups(gpus []pci.Function) (words string, together answer) {
	at, err := pciaddr.Parse(e.Function)
	if err != nil || len(gpus) == 0 {
		return "", unknown
	}
	nic, err := pci.IOMMUGroup(e.Machine.Sys, at)
	if err != nil {
		return "", unknown
	}
	together = yes
	var others []string
	for _, g := range gpus {
		group, err := pci.IOMMUGroup(e.Machine.Sys, g.Addr)
		if err != nil {
			return "", unknown
		}
		if group != nic {
			together = no
		}
		others = append(others, orNone(group))
	}
	return fmt.Sprintf(": %s is in group %s, the GPUs in %s", e.nic(), orNone(nic), list(slices.Compact(others))), together
}

func orNone(group string) string {
	if group == "" {
		return "none"
	}
	return group
}

// nvidiaSeries is the series of the driver, 580, and its version for a sentence.
func (m Machine) nvidiaSeries() (n int, words string, known bool) {
	version, err := m.Sys.ReadString("module/nvidia/version")
	if err != nil {
		return 0, "", false
	}
	n, _, known = series(version)
	return n, " " + version, known
}

// topoCheckOverride is the parameter as the driver shows it: "0", "1" to let
// every importer attach, "2" to let none; "" if that cannot be read.
func (m Machine) topoCheckOverride() string {
	text, err := files.ReadFile(m.Proc.Path("driver/nvidia/params"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "GrdmaPciTopoCheckOverride:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

const (
	vendorNVIDIA = 0x10de
	vendorAmpere = 0x1def
)

// cachedModels are GPUs that are joined to the processor by C2C: GH200, GB200 and
// GB300 (g_nv_name_released.h of 595.45.04).
var cachedModels = []uint16{0x2342, 0x2343, 0x2345, 0x2348, 0x2941, 0x31a1, 0x31c2, 0x31c3}

// cachedGPUs says whether the CPU caches the memory of the machine's GPUs, which the
// driver calls coherent: unknown if it has GPUs of both kinds, or none that is read.
func (m Machine) cachedGPUs() (answer, []pci.Function) {
	gpus, err := m.displays("nvidia")
	if err != nil || len(gpus) == 0 {
		return unknown, nil
	}
	n := 0
	for _, g := range gpus {
		if g.Vendor == vendorNVIDIA && slices.Contains(cachedModels, g.Device) {
			n++
		}
	}
	switch n {
	case len(gpus):
		return yes, gpus
	case 0:
		return no, gpus
	}
	return unknown, gpus
}

// chipsets are those that the driver holds unable to pass peer-to-peer: Grace,
// Altra and AmpereOne (osinit.c and nvcst.h of 580 to 595).
var chipsets = map[uint16][]uint16{
	vendorNVIDIA: {0x22b1, 0x22b2, 0x22b3, 0x22b4, 0x22b8, 0x22b9},
	vendorAmpere: {0xe000, 0xe00d, 0xe00e, 0xe010, 0xe100, 0xe110, 0xe200, 0xe201, 0xe202, 0xe203, 0xe204, 0xe205, 0xe206, 0xe207},
}

func (m Machine) listedChipset() answer {
	names, err := m.Sys.List("bus/pci/devices")
	if err != nil {
		return unknown
	}
	is := no
	for _, name := range names {
		vendor, err1 := m.Sys.ReadUint("bus/pci/devices/"+name+"/vendor", 16)
		device, err2 := m.Sys.ReadUint("bus/pci/devices/"+name+"/device", 16)
		switch {
		case err1 != nil || err2 != nil:
			is = unknown
		case slices.Contains(chipsets[uint16(vendor)], uint16(device)):
			return yes
		}
	}
	return is
}
