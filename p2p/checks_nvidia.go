// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
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
	{ID: "NV-DMABUF-ATTR", Title: "CUDA says that it exports dma-bufs", Worst: ResultFail, run: (*look).dmabufAttribute,
		Expect: "1", Why: "The attribute of the CUDA driver that libraries ask before they export.",
		Fix: Remedy{Change: "install the open kernel modules of R515 or later; turn confidential computing off"}, Ref: "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED"},
	{ID: "NV-PEERMEM", Title: "nvidia-peermem is of use, if it is loaded or needed", Worst: ResultFail, run: (*look).peermem,
		Expect: "not loaded, or registered with ib_core of MLNX_OFED", Why: "The kernel's own ib_core has no such clients: the module loads, and never registers. Programs then say that GPUDirect is disabled, although dma-buf works.",
		Fix: Remedy{Change: "use dma-bufs; nvidia-peermem needs MLNX_OFED, and is to be loaded after it"}, Ref: "NVIDIA/nccl#1939, ROCm/mori#560"},
	{ID: "NV-PEERMEM-KMSG", Title: "nvidia-peermem complains of nothing", Worst: ResultWarn, run: (*look).peermemLog,
		Expect: "no “detected invalid context”", Why: "A program used memory of a context that had ended.",
		Fix: Remedy{Change: "restart the program; if it persists, the driver"}, Ref: "nvidia-peermem.c"},
	{ID: "NV-BAR1", Title: "BAR 1 has room", Worst: ResultWarn, run: (*look).bar1,
		Expect: "more than 256 MiB, and less than 90 % taken", Why: "Everything that is registered takes a part of BAR 1, of all processes together.",
		Fix: Remedy{Change: "resizable BAR in the firmware; fewer registrations at a time"}, Ref: "ofiwg/libfabric#10502, NVIDIA/gdrcopy#301"},
	{ID: "NV-PARAMS", Title: "The driver's parameters do no harm", Worst: ResultFail, run: (*look).nvidiaParams,
		Expect: "DmaRemapPeerMmio 1 where an IOMMU translates", Why: "With 0 the driver gives out addresses that a translating IOMMU does not know.",
		Fix: Remedy{Change: "let the driver map its memory", Command: "options nvidia NVreg_DmaRemapPeerMmio=1"}, Ref: "nv-reg.h"},
	{ID: "NV-CC", Title: "Confidential computing is off", Worst: ResultFail, run: (*look).confidential,
		Expect: "off", Why: "With it the GPU's memory is closed to NICs.",
		Fix: Remedy{Change: "turn it off, or do without GPUDirect", Command: "nvidia_gpu_tools.py --set-cc-mode=off --reset-after-cc-mode-switch", Weakens: "whoever runs the host can read the GPU's memory"}, Ref: "nvmlSystemGetConfComputeState()"},
	{ID: "NV-MIG", Title: "GPUs are whole", Worst: ResultWarn, run: (*look).mig,
		Expect: "no instances", Why: "Instances of one GPU share its BAR 1.",
		Fix: Remedy{Change: whole, Command: "nvidia-smi mig -dci; nvidia-smi mig -dgi", Weakens: noInstances}, Ref: "/proc/driver/nvidia/capabilities"},
	{ID: "NV-COHERENT", Title: "Memory that the CPU caches is exported for PCIe", Worst: ResultWarn, run: (*look).coherentGPU,
		Expect: "no such GPU, or programs that ask for the PCIe mapping", Why: "On Grace a dma-buf leads over C2C and the CPU unless it is made with the flag for a PCIe mapping: slower, or refused.",
		Fix: Remedy{Change: "export with CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE", Command: "NCCL_NET_GDR_C2C=0"}, Ref: "ofiwg/libfabric#10967, linux-rdma/perftest#325"},
	{ID: "NV-P2P-CAPS", Title: "GPUs reach each other", Worst: ResultWarn, run: (*look).peerStatus,
		Expect: "OK for reads and writes", Why: "Where GPUs do not reach each other a program copies through the host. It says nothing of NICs.",
		Fix: Remedy{Change: "see what NVIDIA's driver says of the two", Command: "nvidia-smi topo -p2p rw"}, Ref: "nvmlDeviceGetP2PStatus()"},
}

// unasked reports what only one of NVIDIA's libraries could say. A library that
// is there and fails is another matter: something is wrong with it.
func (l *look) unasked(scope, library string, err error) {
	if err == nil {
		l.unknown(scope, nil, "no file says so, and %s is not asked of a copy", library).aside()
		return
	}
	f := l.unknown(scope, []string{library}, "%v", err)
	if errors.Is(err, ErrNotAsked) {
		f.aside()
	}
}

func (l *look) dmabufAttribute() {
	if !l.onNVIDIA() {
		return
	}
	if l.s.Live.DMABuf == nil {
		l.unasked("", "CUDA", nil)
		return
	}
	said, err := l.s.Live.DMABuf()
	for _, g := range l.driven("nvidia") {
		at := []string{"CUDA"}
		switch e, ok := said[*g.Exporter.PCI]; {
		case ok && e.OK:
			l.pass(g.Name, at, "1")
		case ok && g.Exporter.Proprietary && l.byPeermem():
			l.warn(g.Name, at, "0: %s; nvidia-peermem is loaded and registered", e.Why).fix(cmp.Or(e.Remedy, l.check.Fix.Change), "", "")
		case ok:
			l.fail(g.Name, at, "0: %s", e.Why).fix(cmp.Or(e.Remedy, l.check.Fix.Change), "", "")
		case err != nil:
			l.unasked(g.Name, "CUDA", err)
		default:
			l.unknown(g.Name, at, "CUDA does not list this GPU: CUDA_VISIBLE_DEVICES or the container may hide it")
		}
	}
}

func (l *look) confidential() {
	if !l.onNVIDIA() {
		return
	}
	if l.s.Live.Confidential == nil {
		l.unasked("", "NVML", nil)
		return
	}
	switch on, err := l.s.Live.Confidential(); {
	case err != nil:
		l.unasked("", "NVML", err)
	case on:
		fix := l.check.Fix
		l.unlocked(l.fail("", []string{"NVML"}, "on"), fix.Change, fix.Command, fix.Weakens, "turn it off from a kernel that is not locked down, or do without GPUDirect")
	default:
		l.pass("", []string{"NVML"}, "off")
	}
}

func (l *look) peerStatus() {
	switch gpus := l.driven("nvidia"); {
	case len(gpus) == 0:
		l.onNVIDIA()
		return
	case len(gpus) == 1:
		l.skip("not two GPUs of NVIDIA's driver")
		return
	case l.s.Live.Peers == nil:
		l.unasked("", "NVML", nil)
		return
	}
	all, err := l.s.Live.Peers()
	if err != nil {
		l.unasked("", "NVML", err)
		return
	}
	at := []string{"NVML"}
	var name = map[Addr]string{}
	for _, g := range l.driven("nvidia") {
		name[*g.Exporter.PCI] = g.Name
	}
	for _, p := range all {
		a, b := name[p.A], name[p.B]
		switch scope := a + ", " + b; {
		case a == "" || b == "":
		case p.OK:
			l.pass(scope, at, "OK")
		default:
			l.warn(scope, at, "reads: %s; writes: %s", p.Read, p.Write)
		}
	}
	if len(l.found) == 0 {
		l.unknown("", at, "it lists no two of these GPUs")
	}
}

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
	case strings.Contains(r.text, openModules):
		l.pass("", r.at(), "%s", strings.Join(strings.Fields(first), " "))
	case strings.Contains(taint.text, "P") && l.byPeermem():
		l.warn("", taint.at(), "a proprietary module; nvidia-peermem is loaded and registered, and programs that use it do without dma-bufs").
			fix("for dma-bufs install the open modules (GPUs from Turing on)", "", "")
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
	closed, evidence := l.proprietary()
	loaded, at := l.there("sys/module/nvidia_peermem")
	registered, where := l.peermemClient()
	switch {
	case loaded == placement.AnswerUnknown || loaded == placement.Yes && registered == placement.AnswerUnknown:
		l.unknown("", at, "not known")
	case loaded == placement.Yes && registered == placement.Yes:
		l.pass("", where, "loaded and registered")
	case loaded == placement.Yes && l.peerMemory() == placement.No:
		l.fail("", append(at, "/proc/kallsyms"), "loaded, and ib_core has no ib_register_peer_memory_client to register with")
	case loaded == placement.Yes && closed == placement.Yes:
		l.fail("", append(at, where...), "loaded, and not registered; the proprietary modules export no dma-bufs")
	case loaded == placement.Yes:
		l.warn("", append(at, where...), "loaded, and not registered")
	case closed == placement.Yes:
		l.fail("", append(at, evidence...), "not loaded, and the proprietary modules export no dma-bufs").
			fix("install the open modules (GPUs from Turing on), or MLNX_OFED and load nvidia-peermem", "", "")
	case closed == placement.No:
		l.pass("", at, "not loaded, and dma-bufs do not need it")
	default:
		l.unknown("", append(at, evidence...), "not loaded, and whether the modules are the open ones, which do without, is not known")
	}
}

// peermemClient is whether nvidia-peermem is registered with ib_core.
func (l *look) peermemClient() (placement.Answer, []string) {
	registered, where := l.there("sys/kernel/mm/memory_peers/nv_mem/version")
	if registered == placement.No {
		registered, where = l.there("sys/kernel/mm/memory_peers/nv_mem_nc/version")
	}
	return registered, where
}

// byPeermem reports that programs can register GPU memory without dma-bufs.
func (l *look) byPeermem() bool {
	loaded, _ := l.there("sys/module/nvidia_peermem")
	registered, _ := l.peermemClient()
	return loaded == placement.Yes && registered == placement.Yes
}

// proprietary reports NVIDIA's modules that are not the open ones.
func (l *look) proprietary() (placement.Answer, []string) {
	r, taint := l.read("proc/driver/nvidia/version"), l.read("sys/module/nvidia/taint")
	switch {
	case strings.Contains(r.text, openModules):
		return placement.No, r.at()
	case strings.Contains(taint.text, "P"):
		return placement.Yes, taint.at()
	}
	return placement.AnswerUnknown, append(r.at(), taint.where)
}

// peerMemory asks the kernel's symbols for MLNX_OFED's interface. Its absence
// says something only where ib_core's own symbols are there.
func (l *look) peerMemory() placement.Answer {
	answer, _ := hasSymbol(l.m.proc, "ib_register_peer_memory_client", "ib_register_device")
	return answer
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
		l.quiet(log, "no such line")
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
			l.warn(g.Name, at, "%s", bytesize.Format(int64(bar.Size)))
		case known && use.Used > use.Total/10*9:
			l.warn(g.Name, []string{"NVML"}, "%s of %s taken", bytesize.Format(int64(use.Used)), bytesize.Format(int64(use.Total)))
		case known:
			l.pass(g.Name, []string{"NVML"}, "%s of %s taken", bytesize.Format(int64(use.Used)), bytesize.Format(int64(use.Total)))
		case err != nil:
			l.unknown(g.Name, at, "%s; how much of it is taken is not known: %v", bytesize.Format(int64(bar.Size)), err)
		case l.s.Live.BAR1 == nil:
			l.unknown(g.Name, at, "%s; how much of it is taken is not known of a copy", bytesize.Format(int64(bar.Size)))
		default:
			l.unknown(g.Name, at, "%s; how much of it is taken is not known: NVML does not say", bytesize.Format(int64(bar.Size)))
		}
	}
}

// nvidiaParameters are those of NVIDIA's driver that are read.
var nvidiaParameters = []string{"DmaRemapPeerMmio", "GrdmaPciTopoCheckOverride", "EnableResizableBar", registryDwords}

// registryDwords has settings in one line, of which one is about peers. The others are
// nobody's concern.
const registryDwords = "RegistryDwords"

var peerOverride = regexp.MustCompile(`PeerMappingOverride=[0-9a-fA-Fx]+`)

// NVIDIAParameter reports a line of /proc/driver/nvidia/params that is read.
func NVIDIAParameter(line string) bool {
	name, value, _ := strings.Cut(line, ":")
	if name = strings.TrimSpace(name); name == registryDwords {
		return strings.Trim(strings.TrimSpace(value), `";`) == peerOverride.FindString(value)
	}
	return slices.Contains(nvidiaParameters, name)
}

// The values of DmaRemapPeerMmio.
const (
	remapOff = "0"
	remapOn  = "1"
)

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
		value, ok := r.line(name)
		if name == registryDwords {
			if value = peerOverride.FindString(value); value != "" {
				said = append(said, value)
			}
			continue
		}
		if ok {
			said = append(said, fmt.Sprintf("%s: %s", name, value))
		}
	}
	remap, _ := r.line("DmaRemapPeerMmio")
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
	case remap == remapOff && translates == placement.Yes:
		l.fail("", r.at(), "%s; the IOMMU translates", strings.Join(said, ", "))
	case remap == remapOff && translates == placement.AnswerUnknown:
		l.unknown("", r.at(), "%s; whether the IOMMU translates is not known", strings.Join(said, ", "))
	case remap != remapOn && translates != placement.No:
		l.unknown("", r.at(), "%s; DmaRemapPeerMmio is not among them, or is neither 0 nor 1", strings.Join(said, ", "))
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
		instances, mig := l.list("proc/driver/nvidia/capabilities", gpu, "mig")
		if mig.err != nil && !mig.gone() {
			l.unread("", mig)
			return
		}
		if !slices.ContainsFunc(instances, func(name string) bool { return strings.HasPrefix(name, "gi") }) {
			continue
		}
		at := []string{r.where + "/" + gpu + "/mig"}
		if name := l.ofMinor(strings.TrimPrefix(gpu, "gpu")); name != "" {
			l.warn(name, at, "it has instances").fix(whole, "nvidia-smi mig -i "+name+" -dci; nvidia-smi mig -i "+name+" -dgi", noInstances)
		} else {
			l.warn("", at, "%s has instances", gpu)
		}
	}
	if len(l.found) == 0 {
		l.pass("", r.at(), "no instances")
	}
}

// whole and noInstances are the remedy for instances, and what it costs.
const (
	whole       = "if programs want all of BAR 1, take the instances away"
	noInstances = "what runs in the instances ends"
)

// ofMinor is the GPU of a device file's number, by which the driver names its
// capabilities; "" if it is not known.
func (l *look) ofMinor(minor string) string {
	for _, g := range l.driven("nvidia") {
		if n, ok := l.read("proc/driver/nvidia/gpus", g.Name, "information").line("Device Minor"); ok && n == minor {
			return g.Name
		}
	}
	return ""
}

// grouped reports NICs that are, or may be, in the IOMMU group of a GPU of NVIDIA's, and
// those that are not.
func (l *look) grouped() (within, apart bool) {
	for _, p := range l.pairs {
		if p.GPU.Exporter.Driver != "nvidia" || p.GPU.Exporter.PCI == nil || p.NIC.Importer.PCI == nil || p.NIC.Software {
			continue
		}
		one, _, _ := l.oneGroup(*p.GPU.Exporter.PCI, *p.NIC.Importer.PCI)
		within, apart = within || one != placement.No, apart || one == placement.No
	}
	return within, apart
}

func (l *look) coherentGPU() {
	if !l.onNVIDIA() {
		return
	}
	r := l.read("proc/cpuinfo")
	switch {
	case r.err != nil:
		l.unread("", r)
		return
	}
	switch l.coherent() {
	case placement.Yes:
		f := l.warn("", r.at(), "the processor has Grace's cores (Neoverse V2)")
		switch within, apart := l.grouped(); {
		case apart && !within:
			f.fix("see P2P-NV-FORCEPCIE: the driver refuses the mapping for PCIe to these NICs", "", "").Expect = "no such GPU, or a NIC in its IOMMU group"
		case apart:
			f.Remedy.Change += ", for NICs in the GPU's IOMMU group; for others see P2P-NV-FORCEPCIE"
		}
	case placement.No:
		l.pass("", r.at(), "the processor is not Grace").Expect = ""
	default:
		l.unknown("", r.at(), "whether the processor caches the GPU's memory is not known: neither an x86 nor an Arm core that is known")
	}
}
