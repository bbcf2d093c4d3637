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
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// NVIDIA has the checks of NVIDIA's GPUs.
var NVIDIA = []check.Check{
	{ID: "NV-MODTYPE", Title: "The open kernel modules are loaded", Worst: p2p.ResultFail, Run: nvidiaModule, Links: []chain.Link{chain.Route},
		Expect: "“Open Kernel Module”", Why: "Only the open modules export dma-bufs.",
		Fix: chain.Remedy{Change: "install the open modules (GPUs from Turing on), or rely on nvidia-peermem"}, Ref: "open-gpu-kernel-modules; microsoft/mscclpp#657",
		ByHand: "cat /proc/driver/nvidia/version"},
	{ID: "NV-DMABUF-ATTR", Title: "CUDA says that it exports dma-bufs", Worst: p2p.ResultFail, Run: dmabufAttribute, Links: []chain.Link{chain.Library},
		Expect: "1", Why: "Libraries read this attribute of the CUDA driver before they export memory.",
		Fix: chain.Remedy{Change: "install the open kernel modules of R515 or later; turn confidential computing off"}, Ref: "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED",
		ByHand: "dmabuf-reg devices"},
	{ID: "NV-PEERMEM", Title: "nvidia-peermem can register memory, where it is loaded or needed", Worst: p2p.ResultFail, Run: peermem, Links: []chain.Link{chain.Route},
		Expect: "not loaded, or registered with ib_core of MLNX_OFED or DOCA-OFED", Why: "Programs that call ibv_reg_mr() on GPU memory need it, and get EFAULT without it; programs that register dma-bufs do not. The kernel's own ib_core has no such clients, and a module that was built for another ib_core does not load.",
		Fix: chain.Remedy{Change: "use dma-bufs; nvidia-peermem needs the ib_core of MLNX_OFED or DOCA-OFED, and is built and loaded after it"}, Ref: "nvidia-peermem.c; NVIDIA/nccl#1939, ROCm/mori#560, siderolabs/pkgs#1356, gpu-operator#2868",
		ByHand: "ls -d /sys/module/nvidia_peermem\ncat /sys/kernel/mm/memory_peers/nv_mem/version"},
	{ID: "NV-PEERMEM-KMSG", Title: "nvidia-peermem complains of nothing", Worst: p2p.ResultWarn, Run: peermemLog, Links: []chain.Link{chain.Log},
		Expect: "no “detected invalid context”", Why: "A program used memory of a context that had ended.",
		Fix: chain.Remedy{Change: "restart the program; if it persists, the driver"}, Ref: "nvidia-peermem.c",
		ByHand: "sudo dmesg | grep 'detected invalid context'"},
	{ID: "NV-BAR1", Title: "BAR 1 has room", Worst: p2p.ResultWarn, Run: bar1,
		Expect: "more than 256 MiB, and less than 90 % taken", Why: "The registered memory of all processes takes space in BAR 1.",
		Fix: chain.Remedy{Change: "resizable BAR in the firmware; fewer registrations at a time"}, Ref: "ofiwg/libfabric#10502, NVIDIA/gdrcopy#301",
		ByHand: "nvidia-smi -q -d MEMORY"},
	{ID: "NV-PARAMS", Title: "The driver's parameters do no harm", Worst: p2p.ResultFail, Run: nvidiaParams, Links: []chain.Link{chain.Attach, chain.Addresses},
		Expect: "DmaRemapPeerMmio 1 where an IOMMU translates, on Linux before 6.12", Why: "With DmaRemapPeerMmio 0 the driver gives out addresses that a translating IOMMU does not know. From Linux 6.12 on it does so with 1 as well: get_dma_ops() is then NULL for a device behind an IOMMU.",
		Fix: chain.Remedy{Change: "let the driver map its memory", Command: "options nvidia NVreg_DmaRemapPeerMmio=1"}, Ref: "nv-reg.h; nv_dma_use_map_resource(), nv-dma.c",
		ByHand: "grep -E 'DmaRemapPeerMmio|GrdmaPciTopoCheckOverride|EnableResizableBar' /proc/driver/nvidia/params"},
	{ID: "NV-CC", Title: "Confidential computing is off", Worst: p2p.ResultFail, Run: confidential, Links: []chain.Link{chain.Library},
		Expect: "off", Why: "If it is on, NICs do not reach the GPU's memory.",
		Fix: chain.Remedy{Change: "turn it off, or do without GPUDirect", Command: "nvidia_gpu_tools.py --set-cc-mode=off --reset-after-cc-mode-switch", Weakens: "the host's administrator can read the GPU's memory"}, Ref: "nvmlSystemGetConfComputeState()",
		ByHand: "nvidia-smi conf-compute -f"},
	{ID: "NV-MIG", Title: "GPUs are whole", Worst: p2p.ResultWarn, Run: mig,
		Expect: "no instances", Why: "Instances of one GPU share its BAR 1.",
		Fix: chain.Remedy{Change: whole, Command: "nvidia-smi mig -dci; nvidia-smi mig -dgi", Weakens: noInstances}, Ref: "/proc/driver/nvidia/capabilities",
		ByHand: "nvidia-smi -L\nls /proc/driver/nvidia/capabilities"},
	{ID: "NV-COHERENT", Title: "Memory that the CPU caches takes the better way", Worst: p2p.ResultWarn, Run: coherentGPU, Links: []chain.Link{chain.Attach},
		Expect: "NICs on the CPU's own ports, which C2C leads to, or programs that ask for the PCIe mapping", Why: "On Grace a dma-buf leads over C2C and the CPU unless it is made with the flag for a PCIe mapping, which the driver allows to NICs of the GPU's IOMMU group (P2P-NV-FORCEPCIE).",
		Fix: chain.Remedy{Change: "for these NICs export with CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE, as NCCL does from 2.26 on by itself"}, Ref: "ofiwg/libfabric#10967, linux-rdma/perftest#325; nccl src/graph/paths.cc, ncclTopoGdrModePci",
		ByHand: "grep -m 1 'CPU part' /proc/cpuinfo"},
	{ID: "NV-P2P-CAPS", Title: "GPUs reach each other", Worst: p2p.ResultWarn, Run: peerStatus,
		Expect: "OK for reads and writes", Why: "If GPUs do not reach each other, a program copies through the host. The check says nothing about NICs.",
		Fix: chain.Remedy{Change: "ask NVIDIA's driver about the two GPUs", Command: "nvidia-smi topo -p2p rw"}, Ref: "nvmlDeviceGetP2PStatus()",
		ByHand: "nvidia-smi topo -p2p rw"},
}

// unasked reports that a value is unknown which only one of NVIDIA's libraries knows. If the library is
// missing, the finding is set aside; if the library has failed, it is not.
func unasked(l *check.Look, scope, library string, err error) {
	if err == nil {
		l.Unknown(scope, nil, "no file shows it, and a copy of a machine has no %s to ask", library).SetAside()
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
			l.Warn(g.Name, at, "0: %s; nvidia-peermem is registered", e.Why).Fix(cmp.Or(e.Remedy, l.Check.Fix.Change), "", "")
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
	var name = map[pciaddr.Addr]string{}
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
	first, _, _ = strings.Cut(first, "(") // without the user that built it, and the time
	switch {
	case strings.Contains(r.Text, drivers.OpenModules):
		l.Pass("", r.At(), "%s", strings.Join(strings.Fields(first), " "))
	case strings.Contains(taint.Text, "P") && byPeermem(l):
		l.Warn("", taint.At(), "a proprietary module; nvidia-peermem is registered, and programs that use it do without dma-bufs").
			Fix("for dma-bufs install the open modules (GPUs from Turing on)", "", "")
	case strings.Contains(taint.Text, "P"):
		l.Fail("", taint.At(), "a proprietary module")
	case r.Err != nil:
		l.Unread("", r)
	default:
		l.Unknown("", r.At(), "%q", strings.Join(strings.Fields(first), " "))
	}
}

// proprietary says whether NVIDIA's modules are the proprietary ones, and which files show it.
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

func peermemLog(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	log := l.Log()
	if log.Err != nil {
		check.UnreadLog(l, log)
		return
	}
	hits := check.LogLines(l, log, l.Check.ID)
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
	var taken map[pciaddr.Addr]check.Usage
	var err error
	if l.Subject.Live.BAR1 != nil {
		taken, err = l.Subject.Live.BAR1()
	}
	for _, g := range l.Driven("nvidia") {
		bar, ok := l.Machine.LargestBAR(*g.Exporter.PCI)
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

// nvidiaParameters are the parameters of NVIDIA's driver that the checks read.
var nvidiaParameters = []string{"DmaRemapPeerMmio", "GrdmaPciTopoCheckOverride", "EnableResizableBar", registryDwords}

// registryDwords is a parameter with many settings in one line. The checks read only
// PeerMappingOverride.
const registryDwords = "RegistryDwords"

var peerOverride = regexp.MustCompile(`PeerMappingOverride=[0-9a-fA-Fx]+`)

// NVIDIAParameter reports whether the checks read this line of /proc/driver/nvidia/params.
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
	if len(said) == 0 {
		l.Unknown("", r.At(), "none of the parameters is there")
		return
	}
	remapping(l, r, strings.Join(said, ", "))
}

// remapping judges DmaRemapPeerMmio by the outcome of the pairs. With the parameter set to 1 the driver maps
// the GPU's memory in the IOMMU. That works up to Linux 6.11 only.
func remapping(l *check.Look, r machine.Reading, said string) {
	remap, _ := r.Line("DmaRemapPeerMmio")
	translates, k := placement.No, l.Machine.Kernel
	for _, f := range l.Endpoints() {
		switch {
		case f.IOMMU == "DMA" || f.IOMMU == "DMA-FQ":
			translates = placement.Yes
		case f.IOMMUErr != nil && translates == placement.No:
			translates = placement.AnswerUnknown
		}
	}
	maps := k.IOMMUHasDMAOps()
	pairs := l.OfDriver("nvidia")
	lost := check.LostBehindIOMMU(pairs)
	switch {
	case len(lost) > 0 && maps == placement.Yes:
		l.Fail("", r.At(), "%s; the IOMMU translates", said)
	case len(lost) > 0:
		l.Fail("", r.At(), "%s; the IOMMU translates, and on %s the driver maps nothing in it, whatever DmaRemapPeerMmio says", said, k.Release).
			Fix("let the IOMMU pass DMA through", l.Machine.CPU.PassThrough(), "a device can reach all memory of the host")
	case translates == placement.No:
		l.Pass("", r.At(), "%s", said)
	case check.AllCoherent(pairs):
		l.Pass("", r.At(), "%s; DmaRemapPeerMmio is not asked for memory that the CPU caches", said).Expect = ""
	case remap != drivers.RemapOff && remap != drivers.RemapOn:
		l.Unknown("", r.At(), "%s; DmaRemapPeerMmio is not among them, or is neither 0 nor 1", said)
	case translates == placement.AnswerUnknown && (remap == drivers.RemapOff || maps != placement.Yes):
		l.Unknown("", r.At(), "%s; whether the IOMMU translates is not known", said)
	case remap == drivers.RemapOff || maps == placement.No:
		l.Warn("", r.At(), "%s; the IOMMU translates, and the driver maps nothing in it: no pair here depends on that", said).
			Fix("let the IOMMU pass DMA through, before pairs that go over the root are used", l.Machine.CPU.PassThrough(), "a device can reach all memory of the host")
	case maps == placement.AnswerUnknown:
		l.Unknown("", r.At(), "%s; the IOMMU translates, and whether the driver can map its memory in it on %s is not known", said, k.Release)
	default:
		l.Pass("", r.At(), "%s", said)
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

// whole is the remedy for a GPU that is divided into instances, and noInstances is its cost.
const (
	whole       = "if programs want all of BAR 1, take the instances away"
	noInstances = "programs in the instances end"
)

// ofMinor returns the name of the GPU with a minor device number; "" if it is not known. The driver names
// the GPUs' capabilities by these numbers.
func ofMinor(l *check.Look, minor string) string {
	for _, g := range l.Driven("nvidia") {
		if n, ok := l.Read("proc/driver/nvidia/gpus", g.Name, "information").Line("Device Minor"); ok && n == minor {
			return g.Name
		}
	}
	return ""
}

// pcieMapped returns the NICs that can reach a coherent GPU's memory by PCIe, and not through the CPU. Such
// a NIC and the GPU are below a common bridge and, as the driver demands, in one IOMMU group. open are the
// NICs below a common bridge whose group is not known.
func pcieMapped(l *check.Look, g drivers.GPU) (near, open []string) {
	for _, p := range l.OfGPU(g) {
		if g.Exporter.PCI == nil || p.NIC.Importer.PCI == nil || p.NIC.Software || check.Common(l, p) == nil {
			continue
		}
		switch one, _, _ := check.OneGroup(l, *g.Exporter.PCI, *p.NIC.Importer.PCI); one {
		case placement.Yes:
			near = append(near, p.NIC.Name)
		case placement.AnswerUnknown:
			open = append(open, p.NIC.Name)
		}
	}
	return near, open
}

// coherentGPU reports for each coherent GPU whether its NICs should reach the memory over C2C or by PCIe.
// C2C is right for a NIC on the CPU's own ports; PCIe is shorter for a NIC in the GPU's IOMMU group.
func coherentGPU(l *check.Look) {
	if !check.OnNVIDIA(l) {
		return
	}
	r := l.Read("proc/cpuinfo")
	if r.Err != nil {
		l.Unread("", r)
		return
	}
	cpu := check.Coherent(l)
	for _, g := range l.Driven("nvidia") {
		near, open := pcieMapped(l, g)
		switch {
		case cpu == placement.AnswerUnknown:
			l.Unknown("", r.At(), "whether the processor caches the GPU's memory is not known: neither an x86 nor an Arm core that is known")
			return
		case cpu == placement.No:
			l.Pass("", r.At(), "the processor is not Grace").Expect = ""
			return
		case g.Exporter.Class != drivers.ClassNVIDIACoherent:
			l.Pass(g.Name, r.At(), "Grace's cores (Neoverse V2), and a GPU whose memory they do not cache").Expect = ""
		case len(near) > 0:
			l.Warn(g.Name, r.At(), "Grace caches the GPU's memory, which an ordinary export reaches over C2C; by PCIe these NICs are nearer: %s", check.Some(near))
		case len(open) > 0:
			l.Unknown(g.Name, r.At(), "Grace caches the GPU's memory; whether the driver lets a PCIe mapping through to these NICs is not known: %s", check.Some(open))
		default:
			l.Pass(g.Name, r.At(), "Grace caches the GPU's memory, and C2C is the way to it: no NIC is below a bridge with the GPU, and in its IOMMU group").Expect = ""
		}
	}
}
