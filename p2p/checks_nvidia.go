// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/placement"
)

var nvidiaChecks = []Check{
	{ID: "NV-MODTYPE", Title: "The open kernel modules are loaded", Worst: ResultFail, run: (*look).nvidiaModule,
		Expect: "“Open Kernel Module”", Why: "Only the open modules export dma-bufs.",
		Fix: Remedy{Change: "install the open modules (GPUs from Turing on), or rely on nvidia-peermem"}, Ref: "open-gpu-kernel-modules; microsoft/mscclpp#657"},
	{ID: "NV-DMABUF-ATTR", Title: "CUDA says that it exports dma-bufs", Worst: ResultFail, run: (*look).toCUDA, Why: "The attribute of the CUDA driver that libraries ask.", Ref: "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED"},
	{ID: "NV-PEERMEM", Title: "nvidia-peermem is of use, if it is loaded", Worst: ResultWarn, run: (*look).peermem,
		Expect: "not loaded, or registered with ib_core of MLNX_OFED", Why: "The kernel's own ib_core has no such clients: the module loads, and never registers. Programs then say that GPUDirect is disabled, although dma-buf works.",
		Fix: Remedy{Change: "use dma-bufs; nvidia-peermem needs MLNX_OFED, and is to be loaded after it"}, Ref: "NVIDIA/nccl#1939, ROCm/mori#560"},
	{ID: "NV-PEERMEM-KMSG", Title: "nvidia-peermem complains of nothing", Worst: ResultWarn, run: (*look).peermemLog,
		Expect: "no “detected invalid context”", Why: "A program used memory of a context that had ended.",
		Fix: Remedy{Change: "restart the program; if it persists, the driver"}, Ref: "nvidia-peermem.c"},
	{ID: "NV-BAR1", Title: "BAR 1 has room", Worst: ResultFail, run: (*look).bar1,
		Expect: "more than 256 MiB, and less than 90 % taken", Why: "Everything that is registered takes a part of BAR 1, of all processes together.",
		Fix: Remedy{Change: "resizable BAR in the firmware; fewer registrations at a time"}, Ref: "ofiwg/libfabric#10502, NVIDIA/gdrcopy#301"},
	{ID: "NV-PARAMS", Title: "The driver's parameters do no harm", Worst: ResultFail, run: (*look).nvidiaParams,
		Expect: "DmaRemapPeerMmio 1 where an IOMMU translates", Why: "With 0 the driver gives out addresses that a translating IOMMU does not know.",
		Fix: Remedy{Change: "let the driver map its memory", Command: "options nvidia NVreg_DmaRemapPeerMmio=1"}, Ref: "nv-reg.h"},
	{ID: "NV-CC", Title: "Confidential computing is off", Worst: ResultFail, run: (*look).toNVML, Why: "With it the driver exports no dma-bufs.", Ref: "open-gpu-kernel-modules"},
	{ID: "NV-MIG", Title: "GPUs are whole", Worst: ResultWarn, run: (*look).mig,
		Expect: "no instances", Why: "Instances of one GPU share its BAR 1.", Ref: "/proc/driver/nvidia/capabilities"},
	{ID: "NV-COHERENT", Title: "Memory that the CPU caches is exported for PCIe", Worst: ResultWarn, run: (*look).coherentGPU,
		Expect: "no such GPU, or programs that ask for the PCIe mapping", Why: "On Grace a dma-buf leads over C2C and the CPU unless it is made with the flag for a PCIe mapping: slower, or refused.",
		Fix: Remedy{Change: "export with CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE", Command: "NCCL_NET_GDR_C2C=0"}, Ref: "ofiwg/libfabric#10967, linux-rdma/perftest#325"},
	{ID: "NV-P2P-CAPS", Title: "GPUs reach each other", Worst: ResultWarn, run: (*look).toNVML, Why: "It says nothing of NICs.", Ref: "nvidia-smi topo -p2p"},
}

func (l *look) toCUDA() { l.skip("this program asks no CUDA: dmabuf-reg devices does") }
func (l *look) toNVML() { l.skip("no file says so: nvidia-smi does") }

// onNVIDIA skips where there is no GPU of NVIDIA's driver.
func (l *look) onNVIDIA() bool {
	if len(l.driven("nvidia")) == 0 {
		l.skip("no GPU of NVIDIA's driver")
		return false
	}
	return true
}

func (l *look) nvidiaModule() {
	if !l.onNVIDIA() {
		return
	}
	r := l.read("proc/driver/nvidia/version")
	taint := l.read("sys/module/nvidia/taint")
	first, _, _ := strings.Cut(r.text, "\n")
	switch {
	case strings.Contains(r.text, "Open Kernel Module"):
		l.pass("", r.at(), "%s", strings.Join(strings.Fields(first), " "))
	case strings.Contains(taint.text, "P"):
		l.fail("", taint.at(), "a proprietary module")
	case r.err != nil:
		l.unread("", r)
	default:
		l.unknown("", r.at(), "%q", strings.Join(strings.Fields(first), " "))
	}
}

func (l *look) peermem() {
	if !l.onNVIDIA() {
		return
	}
	loaded, at := l.there("sys/module/nvidia_peermem")
	registered, where := l.there("sys/kernel/mm/memory_peers/nv_mem/version")
	if registered == placement.No {
		registered, where = l.there("sys/kernel/mm/memory_peers/nv_mem_nc/version")
	}
	switch {
	case loaded == placement.AnswerUnknown || loaded == placement.Yes && registered == placement.AnswerUnknown:
		l.unknown("", at, "not known")
	case loaded == placement.No:
		l.pass("", at, "not loaded, and dma-bufs do not need it")
	case registered == placement.Yes:
		l.pass("", where, "loaded and registered")
	default:
		l.warn("", append(at, where...), "loaded, and not registered")
	}
}

func (l *look) peermemLog() {
	if !l.onNVIDIA() {
		return
	}
	log := l.log()
	if log.err != nil {
		l.unreadLog(log)
		return
	}
	hits := log.of(l, l.check.ID)
	if len(hits) == 0 {
		l.pass("", log.at(), "no such line%s", log.lost())
	}
	for _, h := range hits {
		l.warn("", log.at(), "%s", h.line)
	}
}

func (l *look) bar1() {
	if !l.onNVIDIA() {
		return
	}
	var taken map[Addr]Usage
	var err error
	if l.s.Live.BAR1 != nil {
		taken, err = l.s.Live.BAR1()
	}
	for _, g := range l.driven("nvidia") {
		bar, ok := pci.LargestBAR(l.m.sys, *g.Exporter.PCI)
		at := []string{"/sys/bus/pci/devices/" + g.Name + "/resource"}
		use, known := taken[*g.Exporter.PCI]
		switch {
		case !ok:
			l.unknown(g.Name, at, "no BAR that has an address is known")
		case bar.Size <= smallBAR:
			l.fail(g.Name, at, "%s", bytesize.Format(int64(bar.Size)))
		case known && use.Used > use.Total/10*9:
			l.warn(g.Name, []string{"NVML"}, "%s of %s taken", bytesize.Format(int64(use.Used)), bytesize.Format(int64(use.Total)))
		case known:
			l.pass(g.Name, []string{"NVML"}, "%s of %s taken", bytesize.Format(int64(use.Used)), bytesize.Format(int64(use.Total)))
		case err != nil:
			l.pass(g.Name, at, "%s; how much of it is taken is not known: %v", bytesize.Format(int64(bar.Size)), err)
		default:
			l.pass(g.Name, at, "%s; how much of it is taken is not looked at in a copy", bytesize.Format(int64(bar.Size)))
		}
	}
}

// nvidiaParameters are those of NVIDIA's driver that are read.
var nvidiaParameters = []string{"DmaRemapPeerMmio", "GrdmaPciTopoCheckOverride", "EnableResizableBar"}

// NVIDIAParameter reports a line of /proc/driver/nvidia/params that is read.
func NVIDIAParameter(line string) bool {
	name, _, _ := strings.Cut(line, ":")
	return slices.Contains(nvidiaParameters, strings.TrimSpace(name))
}

func (l *look) nvidiaParams() {
	if !l.onNVIDIA() {
		return
	}
	r := l.read("proc/driver/nvidia/params")
	if r.err != nil {
		l.unread("", r)
		return
	}
	var said []string
	for _, name := range nvidiaParameters {
		if value, ok := r.line(name); ok {
			said = append(said, fmt.Sprintf("%s: %s", name, value))
		}
	}
	remap, ok := r.line("DmaRemapPeerMmio")
	translates := placement.No
	for _, f := range l.endpoints() {
		switch {
		case f.IOMMU == "DMA" || f.IOMMU == "DMA-FQ":
			translates = placement.Yes
		case f.IOMMUErr != nil && translates == placement.No:
			translates = placement.AnswerUnknown
		}
	}
	switch {
	case len(said) == 0:
		l.unknown("", r.at(), "none of the parameters is there")
	case ok && remap == "0" && translates == placement.Yes:
		l.fail("", r.at(), "%s; the IOMMU translates", strings.Join(said, ", "))
	case ok && remap == "0" && translates == placement.AnswerUnknown:
		l.unknown("", r.at(), "%s; whether the IOMMU translates is not known", strings.Join(said, ", "))
	default:
		l.pass("", r.at(), "%s", strings.Join(said, ", "))
	}
}

func (l *look) mig() {
	if !l.onNVIDIA() {
		return
	}
	gpus, r := l.list("proc/driver/nvidia/capabilities")
	if r.err != nil {
		l.unread("", r)
		return
	}
	for _, gpu := range gpus {
		if !strings.HasPrefix(gpu, "gpu") {
			continue
		}
		instances, _ := l.list("proc/driver/nvidia/capabilities", gpu, "mig")
		for _, name := range instances {
			if strings.HasPrefix(name, "gi") {
				l.warn("", []string{r.where + "/" + gpu + "/mig"}, "%s has instances", gpu)
				return
			}
		}
	}
	l.pass("", r.at(), "no instances")
}

func (l *look) coherentGPU() {
	if !l.onNVIDIA() {
		return
	}
	r := l.read("proc/cpuinfo")
	switch {
	case r.err != nil:
		l.unread("", r)
	case l.coherent():
		l.warn("", r.at(), "the processor is Grace")
	default:
		l.pass("", r.at(), "the processor is not Grace").Expect = ""
	}
}
