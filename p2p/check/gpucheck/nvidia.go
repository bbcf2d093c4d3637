// SPDX-License-Identifier: Apache-2.0

package gpucheck

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

var NVIDIA = []check.Check{
	{ID: "NV-MODTYPE", Title: "The open kernel modules are loaded", Worst: p2p.ResultFail, Run: nvidiaModule, Links: []chain.Link{chain.Route},
		Expect: "“Open Kernel Module”", Why: "Only the open modules export dma-bufs.",
		Fix: chain.Remedy{Change: "install the open modules (GPUs from Turing on), or rely on nvidia-peermem"}, Ref: "open-gpu-kernel-modules; microsoft/mscclpp#657"},
	{ID: "NV-DMABUF-ATTR", Title: "CUDA says that it exports dma-bufs", Worst: p2p.ResultFail, Run: dmabufAttribute, Links: []chain.Link{chain.Library},
		Expect: "1", Why: "The attribute of the CUDA driver that libraries ask before they export.",
		Fix: chain.Remedy{Change: "install the open kernel modules of R515 or later; turn confidential computing off"}, Ref: "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED"},
	{ID: "NV-PEERMEM", Title: "nvidia-peermem is of use, if it is loaded or needed", Worst: p2p.ResultFail, Run: peermem, Links: []chain.Link{chain.Route},
		Expect: "not loaded, or registered with ib_core of MLNX_OFED", Why: "The kernel's own ib_core has no such clients: the module loads, and never registers. Programs then say that GPUDirect is disabled, although dma-buf works.",
		Fix: chain.Remedy{Change: "use dma-bufs; nvidia-peermem needs MLNX_OFED, and is to be loaded after it"}, Ref: "NVIDIA/nccl#1939, ROCm/mori#560"},
	{ID: "NV-PEERMEM-KMSG", Title: "nvidia-peermem complains of nothing", Worst: p2p.ResultWarn, Run: peermemLog, Links: []chain.Link{chain.Log},
		Expect: "no “detected invalid context”", Why: "A program used memory of a context that had ended.",
		Fix: chain.Remedy{Change: "restart the program; if it persists, the driver"}, Ref: "nvidia-peermem.c"},
	{ID: "NV-BAR1", Title: "BAR 1 has room", Worst: p2p.ResultWarn, Run: bar1,
		Expect: "more than 256 MiB, and less than 90 % taken", Why: "Everything that is registered takes a part of BAR 1, of all processes together.",
		Fix: chain.Remedy{Change: "resizable BAR in the firmware; fewer registrations at a time"}, Ref: "ofiwg/libfabric#10502, NVIDIA/gdrcopy#301"},
	{ID: "NV-PARAMS", Title: "The driver's parameters do no harm", Worst: p2p.ResultFail, Run: nvidiaParams, Links: []chain.Link{chain.Attach, chain.Addresses},
		Expect: "DmaRemapPeerMmio 1 where an IOMMU translates", Why: "With 0 the driver gives out addresses that a translating IOMMU does not know.",
		Fix: chain.Remedy{Change: "let the driver map its memory", Command: "options nvidia NVreg_DmaRemapPeerMmio=1"}, Ref: "nv-reg.h"},
	{ID: "NV-CC", Title: "Confidential computing is off", Worst: p2p.ResultFail, Run: confidential, Links: []chain.Link{chain.Library},
		Expect: "off", Why: "With it the GPU's memory is closed to NICs.",
		Fix: chain.Remedy{Change: "turn it off, or do without GPUDirect", Command: "nvidia_gpu_tools.py --set-cc-mode=off --reset-after-cc-mode-switch", Weakens: "whoever runs the host can read the GPU's memory"}, Ref: "nvmlSystemGetConfComputeState()"},
	{ID: "NV-MIG", Title: "GPUs are whole", Worst: p2p.ResultWarn, Run: mig, Links: []chain.Link{chain.Library},
		Expect: "no instances", Why: "Instances of one GPU share its BAR 1.",
		Fix: chain.Remedy{Change: whole, Command: "nvidia-smi mig -dci; nvidia-smi mig -dgi", Weakens: noInstances}, Ref: "/proc/driver/nvidia/capabilities"},
	{ID: "NV-COHERENT", Title: "Memory that the CPU caches is exported for PCIe", Worst: p2p.ResultWarn, Run: coherentGPU, Links: []chain.Link{chain.Attach},
		Expect: "no such GPU, or programs that ask for the PCIe mapping", Why: "On Grace a dma-buf leads over C2C and the CPU unless it is made with the flag for a PCIe mapping: slower, or refused.",
		Fix: chain.Remedy{Change: "export with CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE", Command: "NCCL_NET_GDR_C2C=0"}, Ref: "ofiwg/libfabric#10967, linux-rdma/perftest#325"},
	{ID: "NV-P2P-CAPS", Title: "GPUs reach each other", Worst: p2p.ResultWarn, Run: peerStatus,
		Expect: "OK for reads and writes", Why: "Where GPUs do not reach each other a program copies through the host. It says nothing of NICs.",
		Fix: chain.Remedy{Change: "see what NVIDIA's driver says of the two", Command: "nvidia-smi topo -p2p rw"}, Ref: "nvmlDeviceGetP2PStatus()"},
}

// unasked reports what only one of NVIDIA's libraries could say. A library that
// is there and fails is another matter: something is wrong with it.
func unasked(l *check.Look, scope, library string, err error) {
	if err == nil {
		l.Unknown(scope, nil, "no file says so, and %s is not asked of a copy", library).SetAside()
		return
	}
	f := l.Unknown(scope, []string{library}, "%v", err)
	if errors.Is(err, check.ErrNotAsked) {
		f.SetAside()
	}
}

func dmabufAttribute(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	if l.Subject.Live.DMABuf == nil {
		unasked(l, "", "CUDA", nil)
		return
	}
	said, err := l.Subject.Live.DMABuf()
	for _, g := range l.Driven("nvidia") {
		at := []string{"CUDA"}
		switch e, ok := said[*g.Exporter.PCI]; {
		case ok && e.OK:
			l.Pass(g.Name, at, "1")
		case ok && g.Exporter.Proprietary && byPeermem(l):
			l.Warn(g.Name, at, "0: %s; nvidia-peermem is loaded and registered", e.Why).Fix(cmp.Or(e.Remedy, l.Check.Fix.Change), "", "")
		case ok:
			l.Fail(g.Name, at, "0: %s", e.Why).Fix(cmp.Or(e.Remedy, l.Check.Fix.Change), "", "")
		case err != nil:
			unasked(l, g.Name, "CUDA", err)
		default:
			l.Unknown(g.Name, at, "CUDA does not list this GPU: CUDA_VISIBLE_DEVICES or the container may hide it")
		}
	}
}

func confidential(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	if l.Subject.Live.Confidential == nil {
		unasked(l, "", "NVML", nil)
		return
	}
	switch on, err := l.Subject.Live.Confidential(); {
	case err != nil:
		unasked(l, "", "NVML", err)
	case on:
		fix := l.Check.Fix
		check.Unlocked(l, l.Fail("", []string{"NVML"}, "on"), fix.Change, fix.Command, fix.Weakens, "turn it off from a kernel that is not locked down, or do without GPUDirect")
	default:
		l.Pass("", []string{"NVML"}, "off")
	}
}

func peerStatus(l *check.Look) {
	switch gpus := l.Driven("nvidia"); {
	case len(gpus) == 0:
		check.OnNVIDIA(l)
		return
	case len(gpus) == 1:
		l.Skip("not two GPUs of NVIDIA's driver")
		return
	case l.Subject.Live.Peers == nil:
		unasked(l, "", "NVML", nil)
		return
	}
	all, err := l.Subject.Live.Peers()
	if err != nil {
		unasked(l, "", "NVML", err)
		return
	}
	at := []string{"NVML"}
	var name = map[machine.Addr]string{}
	for _, g := range l.Driven("nvidia") {
		name[*g.Exporter.PCI] = g.Name
	}
	for _, p := range all {
		a, b := name[p.A], name[p.B]
		switch scope := a + ", " + b; {
		case a == "" || b == "":
		case p.OK:
			l.Pass(scope, at, "OK")
		default:
			l.Warn(scope, at, "reads: %s; writes: %s", p.Read, p.Write)
		}
	}
	if len(l.Found) == 0 {
		l.Unknown("", at, "it lists no two of these GPUs")
	}
}

func nvidiaModule(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	r := l.Read("proc/driver/nvidia/version")
	taint := l.Read("sys/module/nvidia/taint")
	first, _, _ := strings.Cut(r.Text, "\n")
	switch {
	case strings.Contains(r.Text, drivers.OpenModules):
		l.Pass("", r.At(), "%s", strings.Join(strings.Fields(first), " "))
	case strings.Contains(taint.Text, "P") && byPeermem(l):
		l.Warn("", taint.At(), "a proprietary module; nvidia-peermem is loaded and registered, and programs that use it do without dma-bufs").
			Fix("for dma-bufs install the open modules (GPUs from Turing on)", "", "")
	case strings.Contains(taint.Text, "P"):
		l.Fail("", taint.At(), "a proprietary module")
	case r.Err != nil:
		l.Unread("", r)
	default:
		l.Unknown("", r.At(), "%q", strings.Join(strings.Fields(first), " "))
	}
}

func peermem(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	closed, evidence := proprietary(l)
	loaded, at := l.There("sys/module/nvidia_peermem")
	registered, where := peermemClient(l)
	switch {
	case loaded == placement.AnswerUnknown || loaded == placement.Yes && registered == placement.AnswerUnknown:
		l.Unknown("", at, "not known")
	case loaded == placement.Yes && registered == placement.Yes:
		l.Pass("", where, "loaded and registered")
	case loaded == placement.Yes && peerMemory(l) == placement.No:
		l.Fail("", append(at, "/proc/kallsyms"), "loaded, and ib_core has no ib_register_peer_memory_client to register with")
	case loaded == placement.Yes && closed == placement.Yes:
		l.Fail("", append(at, where...), "loaded, and not registered; the proprietary modules export no dma-bufs")
	case loaded == placement.Yes:
		l.Warn("", append(at, where...), "loaded, and not registered")
	case closed == placement.Yes:
		l.Fail("", append(at, evidence...), "not loaded, and the proprietary modules export no dma-bufs").
			Fix("install the open modules (GPUs from Turing on), or MLNX_OFED and load nvidia-peermem", "", "")
	case closed == placement.No:
		l.Pass("", at, "not loaded, and dma-bufs do not need it")
	default:
		l.Unknown("", append(at, evidence...), "not loaded, and whether the modules are the open ones, which do without, is not known")
	}
}

// peermemClient is whether nvidia-peermem is registered with ib_core.
func peermemClient(l *check.Look) (placement.Answer, []string) {
	registered, where := l.There("sys/kernel/mm/memory_peers/nv_mem/version")
	if registered == placement.No {
		registered, where = l.There("sys/kernel/mm/memory_peers/nv_mem_nc/version")
	}
	return registered, where
}

// byPeermem reports that programs can register GPU memory without dma-bufs.
func byPeermem(l *check.Look) bool {
	loaded, _ := l.There("sys/module/nvidia_peermem")
	registered, _ := peermemClient(l)
	return loaded == placement.Yes && registered == placement.Yes
}

// proprietary reports NVIDIA's modules that are not the open ones.
func proprietary(l *check.Look) (placement.Answer, []string) {
	r, taint := l.Read("proc/driver/nvidia/version"), l.Read("sys/module/nvidia/taint")
	switch {
	case strings.Contains(r.Text, drivers.OpenModules):
		return placement.No, r.At()
	case strings.Contains(taint.Text, "P"):
		return placement.Yes, taint.At()
	}
	return placement.AnswerUnknown, append(r.At(), taint.Where)
}

// peerMemory asks the kernel's symbols for MLNX_OFED's interface. Its absence
// says something only where ib_core's own symbols are there.
func peerMemory(l *check.Look) placement.Answer {
	answer, _ := machine.HasSymbol(l.Machine.Proc, "ib_register_peer_memory_client", "ib_register_device")
	return answer
}

func peermemLog(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	log := l.Log()
	if log.Err != nil {
		check.UnreadLog(l, log)
		return
	}
	hits := check.Of(log, l, l.Check.ID)
	if len(hits) == 0 {
		l.Quiet(log, "no such line")
	}
	for _, h := range hits {
		l.Warn("", log.At(), "%s", h.Line)
	}
}

func bar1(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	var taken map[machine.Addr]check.Usage
	var err error
	if l.Subject.Live.BAR1 != nil {
		taken, err = l.Subject.Live.BAR1()
	}
	for _, g := range l.Driven("nvidia") {
		bar, ok := pci.LargestBAR(l.Machine.Sys, *g.Exporter.PCI)
		at := []string{"/sys/bus/pci/devices/" + g.Name + "/resource"}
		use, known := taken[*g.Exporter.PCI]
		switch {
		case !ok:
			l.Unknown(g.Name, at, "no BAR that has an address is known")
		case bar.Size <= check.SmallBAR:
			l.Warn(g.Name, at, "%s", bytesize.Format(int64(bar.Size)))
		case known && use.Used > use.Total/10*9:
			l.Warn(g.Name, []string{"NVML"}, "%s of %s taken", bytesize.Format(int64(use.Used)), bytesize.Format(int64(use.Total)))
		case known:
			l.Pass(g.Name, []string{"NVML"}, "%s of %s taken", bytesize.Format(int64(use.Used)), bytesize.Format(int64(use.Total)))
		case err != nil:
			l.Unknown(g.Name, at, "%s; how much of it is taken is not known: %v", bytesize.Format(int64(bar.Size)), err)
		case l.Subject.Live.BAR1 == nil:
			l.Unknown(g.Name, at, "%s; how much of it is taken is not known of a copy", bytesize.Format(int64(bar.Size)))
		default:
			l.Unknown(g.Name, at, "%s; how much of it is taken is not known: NVML does not say", bytesize.Format(int64(bar.Size)))
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

func nvidiaParams(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	r := l.Read("proc/driver/nvidia/params")
	if r.Err != nil {
		l.Unread("", r)
		return
	}
	var said []string
	for _, name := range nvidiaParameters {
		value, ok := r.Line(name)
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
	remap, _ := r.Line("DmaRemapPeerMmio")
	translates := placement.No
	for _, f := range l.Endpoints() {
		switch {
		case f.IOMMU == "DMA" || f.IOMMU == "DMA-FQ":
			translates = placement.Yes
		case f.IOMMUErr != nil && translates == placement.No:
			translates = placement.AnswerUnknown
		}
	}
	switch {
	case len(said) == 0:
		l.Unknown("", r.At(), "none of the parameters is there")
	case remap == drivers.RemapOff && translates == placement.Yes:
		l.Fail("", r.At(), "%s; the IOMMU translates", strings.Join(said, ", "))
	case remap == drivers.RemapOff && translates == placement.AnswerUnknown:
		l.Unknown("", r.At(), "%s; whether the IOMMU translates is not known", strings.Join(said, ", "))
	case remap != drivers.RemapOn && translates != placement.No:
		l.Unknown("", r.At(), "%s; DmaRemapPeerMmio is not among them, or is neither 0 nor 1", strings.Join(said, ", "))
	default:
		l.Pass("", r.At(), "%s", strings.Join(said, ", "))
	}
}

func mig(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	gpus, r := l.List("proc/driver/nvidia/capabilities")
	if r.Err != nil {
		l.Unread("", r)
		return
	}
	for _, gpu := range gpus {
		if !strings.HasPrefix(gpu, "gpu") {
			continue
		}
		instances, mig := l.List("proc/driver/nvidia/capabilities", gpu, "mig")
		if mig.Err != nil && !mig.Gone() {
			l.Unread("", mig)
			return
		}
		if !slices.ContainsFunc(instances, func(name string) bool { return strings.HasPrefix(name, "gi") }) {
			continue
		}
		at := []string{r.Where + "/" + gpu + "/mig"}
		if name := ofMinor(l, strings.TrimPrefix(gpu, "gpu")); name != "" {
			l.Warn(name, at, "it has instances").Fix(whole, "nvidia-smi mig -i "+name+" -dci; nvidia-smi mig -i "+name+" -dgi", noInstances)
		} else {
			l.Warn("", at, "%s has instances", gpu)
		}
	}
	if len(l.Found) == 0 {
		l.Pass("", r.At(), "no instances")
	}
}

// whole and noInstances are the remedy for instances, and what it costs.
const (
	whole       = "if programs want all of BAR 1, take the instances away"
	noInstances = "what runs in the instances ends"
)

// ofMinor is the GPU of a device file's number, by which the driver names its
// capabilities; "" if it is not known.
func ofMinor(l *check.Look, minor string) string {
	for _, g := range l.Driven("nvidia") {
		if n, ok := l.Read("proc/driver/nvidia/gpus", g.Name, "information").Line("Device Minor"); ok && n == minor {
			return g.Name
		}
	}
	return ""
}

// grouped reports NICs that are, or may be, in the IOMMU group of a GPU of NVIDIA's, and
// those that are not.
func grouped(l *check.Look) (within, apart bool) {
	for _, p := range l.Pairs {
		if p.GPU.Exporter.Driver != "nvidia" || p.GPU.Exporter.PCI == nil || p.NIC.Importer.PCI == nil || p.NIC.Software {
			continue
		}
		one, _, _ := check.OneGroup(l, *p.GPU.Exporter.PCI, *p.NIC.Importer.PCI)
		within, apart = within || one != placement.No, apart || one == placement.No
	}
	return within, apart
}

func coherentGPU(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	r := l.Read("proc/cpuinfo")
	switch {
	case r.Err != nil:
		l.Unread("", r)
		return
	}
	switch check.Coherent(l) {
	case placement.Yes:
		f := l.Warn("", r.At(), "the processor has Grace's cores (Neoverse V2)")
		switch within, apart := grouped(l); {
		case apart && !within:
			f.Fix("see P2P-NV-FORCEPCIE: the driver refuses the mapping for PCIe to these NICs", "", "").Expect = "no such GPU, or a NIC in its IOMMU group"
		case apart:
			f.Remedy.Change += ", for NICs in the GPU's IOMMU group; for others see P2P-NV-FORCEPCIE"
		}
	case placement.No:
		l.Pass("", r.At(), "the processor is not Grace").Expect = ""
	default:
		l.Unknown("", r.At(), "whether the processor caches the GPU's memory is not known: neither an x86 nor an Arm core that is known")
	}
}
