// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/placement"
)

var decisionChecks = []Check{
	{ID: "P2P-VERDICT", Title: "The kernel lets the NIC reach the GPU", Worst: ResultFail, run: (*look).verdict,
		Expect: "bus address, or through the host bridge", Why: "amdgpu, xe and vfio-pci ask this decision. NVIDIA's driver does not: there the hardware may still not route what the kernel would refuse.",
		Fix: Remedy{Change: "use a NIC below the GPU's switch"}, Ref: "calc_map_type_and_dist(), drivers/pci/p2pdma.c"},
	{ID: "P2P-ACS-LIST", Title: "No port on the way redirects to the root", Worst: ResultFail, run: (*look).acsList,
		Expect: "neither request redirect, completion redirect nor egress control", Why: "A port that redirects sends traffic between two devices below one switch to the root, which may not send it back.",
		Fix: Remedy{Change: "let the ports on the way pass peer-to-peer traffic", Command: "pci=disable_acs_redir=PORTS", Weakens: "devices below these ports reach each other past the IOMMU: not for machines that give them to different guests"}, Ref: "pci_bridge_has_acs_redir(), drivers/pci/p2pdma.c"},
	{ID: "P2P-WHITELIST", Title: "The kernel trusts the host bridge", Worst: ResultWarn, run: (*look).hostBridges,
		Expect: "an AMD processor from Zen on, or a host bridge of the kernel's list", Why: "Traffic between two root ports passes the root complex, and not every one passes it on. It matters to pairs without a common bridge, or with ACS in the way.",
		Fix: Remedy{Change: "use NICs below the GPUs' switches: no software makes a root complex pass traffic"}, Ref: "pci_p2pdma_whitelist, drivers/pci/p2pdma.c"},
	{ID: "P2P-CACHE", Title: "A changed ACS setting counts", Worst: ResultWarn, run: (*look).cached,
		Expect: "a GPU whose driver asks anew each time", Why: "The kernel keeps its decision for providers with registered peer-to-peer memory and for vfio-pci: what setpci changes later has no effect until the driver is bound anew.",
		Fix: Remedy{Change: "after a change of ACS, unbind and bind the GPU's driver, or reboot"}, Ref: "drivers/pci/p2pdma.c"},
	{ID: "P2P-NV-GATE", Title: "NVIDIA's gate lets the NIC attach", Worst: ResultFail, run: (*look).nvidiaGate,
		Expect: "no ENOTSUPP (524)", Why: "On Grace's, Altra's and AmpereOne's chipsets NVIDIA's driver asks for a common switch, unless the CPU caches the GPU's memory, and answers errno 524, which programs print as “Unknown error 524”.",
		Fix: Remedy{Change: "use a NIC below the GPU's switch, or open the gate", Command: "options nvidia NVreg_GrdmaPciTopoCheckOverride=1", Weakens: "the hardware may not route the traffic: prove it before you rely on it"}, Ref: "nv_grdma_pci_topology_supported(), nv-pci.c; _checkP2pChipsetSupport(), osinit.c"},
	{ID: "P2P-NV-FORCEPCIE", Title: "A coherent GPU's PCIe mapping is let through", Worst: ResultWarn, run: (*look).forcePCIe,
		Expect: "GPU and NIC in one IOMMU group", Why: "For memory exported with the PCIe mapping flag NVIDIA's driver asks that both are in one IOMMU group, and answers 524 otherwise.",
		Fix: Remedy{Change: "for these NICs export without that flag: they then reach the memory over C2C"}, Ref: "nv_pci_is_valid_topology_for_direct_pci(), nv-pci.c; openucx/ucx#11571"},
	{ID: "P2P-DIST", Title: "Each GPU has a NIC near by", Worst: ResultWarn, run: (*look).nearest,
		Expect: "a NIC below a common bridge or on the same NUMA node", Why: "A program that takes a farther NIC goes over the root, or over the link between sockets.",
		Fix: Remedy{Change: "bind each GPU's traffic to the NIC that is nearest"}, Ref: "NVIDIA/nccl#1151"},
	{ID: "P2P-DMAMASK", Title: "The NIC can write the GPU's addresses", Worst: ResultFail, run: (*look).dmaMask,
		Expect: "the BAR ends below the NIC's address bits, or an IOMMU translates", Why: "A NIC with fewer address bits than the BAR's place needs cannot reach it.",
		Fix: Remedy{Change: "let the firmware place the BARs lower, or let an IOMMU translate", Command: translating, Weakens: undoesPT}, Ref: "ROCm/ROCR-Runtime#355"},
}

// asksKernel reports an exporter that goes by the kernel's decision.
func asksKernel(e Exporter) bool {
	switch e.Class {
	case ClassAMDGPU, ClassXe, ClassVFIO, ClassHabana, ClassUnknown:
		return true
	}
	return false
}

// perPair runs f for each pair that counts, and skips where there is none.
func (l *look) perPair(f func(Pair)) {
	if len(l.pairs) == 0 {
		l.skip("no pair of a GPU and a NIC")
	}
	for _, p := range l.pairs {
		f(p)
	}
}

func (l *look) verdict() {
	near := map[string]bool{} // GPUs with a NIC on their own node that the kernel lets pass
	for _, p := range l.pairs {
		if node := l.pairNodes(p); p.Prediction.Decision.Supported == placement.Yes && node[0] == node[1] && node[0] >= 0 {
			near[p.GPU.Name] = true
		}
	}
	l.perPair(func(p Pair) {
		d, name := p.Prediction.Decision, p.name()
		why := strings.Join(d.Why, "; ")
		switch {
		case p.NIC.Importer.PCI == nil || p.NIC.Importer.Kind == NoImporter:
			return // the NIC's own checks say so
		case d.Supported == placement.Yes:
			l.supported(p, near[p.GPU.Name])
		case d.Supported == placement.AnswerUnknown:
			l.unknown(name, nil, "%s", why).Remedy = p.Remedy.ofAll()
		case asksKernel(p.GPU.Exporter):
			l.fail(name, nil, "%s", why).Remedy = p.Remedy
		default:
			f := l.warn(name, nil, "%v does not ask the kernel, which says: %s", p.GPU.Exporter.Class, why)
			switch {
			case len(d.Redirects) > 0: // it is below one switch already
				f.Remedy = l.opening(p)
			case p.GPU.Exporter.PCI != nil && l.m.unswitched(*p.GPU.Exporter.PCI):
				f.fix(guestSwitch, "", "")
			}
		}
	})
	if len(l.found) == 0 {
		l.skip("no NIC on PCI that imports dma-bufs")
	}
}

// supported passes a pair that the kernel lets pass. Over the link between sockets the
// traffic is slower, and not every processor passes it: a warning where the GPU has
// no NIC on its own side that the kernel lets pass.
func (l *look) supported(p Pair, near bool) {
	d, name, node := p.Prediction.Decision, p.name(), l.pairNodes(p)
	if d.Type != MapThroughHostBridge || node[0] < 0 || node[1] < 0 || node[0] == node[1] {
		l.pass(name, nil, "%v", d.Type)
		return
	}
	read := fmt.Sprintf("%v, and from node %d to node %d: over the link between sockets", d.Type, node[0], node[1])
	at := []string{"/sys/bus/pci/devices/" + p.GPU.Exporter.PCI.String() + "/numa_node", "/sys/bus/pci/devices/" + p.NIC.Importer.PCI.String() + "/numa_node"}
	if near {
		l.pass(name, at, "%s", read)
		return
	}
	l.warn(name, at, "%s", read).fix("put a NIC into a slot of the GPU's socket", "", "").Expect = "bus address, or through the host bridge of one socket"
}

// pairNodes are the NUMA nodes of a pair's functions, negative if they are not known.
func (l *look) pairNodes(p Pair) (node [2]int) {
	for i, a := range []*Addr{p.GPU.Exporter.PCI, p.NIC.Importer.PCI} {
		if node[i] = -1; a != nil {
			node[i] = l.nodeOf(*a)
		}
	}
	return node
}

func (l *look) acsList() {
	l.perPair(func(p Pair) {
		d, name := p.Prediction.Decision, p.name()
		if d.Common == nil {
			// ACS does not decide, unless a hypervisor hides a bridge of both.
			if l.m.virtual.is == placement.Yes && p.real() {
				l.unknown(name, nil, "no common bridge is seen; %s", inventedTree).fix("look at the host", "", "")
			}
			return
		}
		var on []string
		for _, r := range d.Redirects {
			on = append(on, r.String())
		}
		fix := l.opening(p)
		switch {
		case len(on) > 0 && !asksKernel(p.GPU.Exporter) && !l.m.gains(p):
			l.warn(name, nil, "%s; something else is in the way", strings.Join(on, ", ")).Remedy = fix
		case len(on) > 0 && (d.Supported == placement.Yes || !asksKernel(p.GPU.Exporter)):
			l.warn(name, nil, "%s: the traffic goes over the root", strings.Join(on, ", ")).Remedy = fix
		case len(on) > 0:
			l.fail(name, nil, "%s", strings.Join(on, ", ")).Remedy = fix
		case d.unread != nil && d.Type != MapBusAddress:
			l.unknown(name, nil, "%v", d.unread).asRoot(l.m)
		case d.Type == MapBusAddress:
			l.pass(name, nil, "none")
		case d.Supported == placement.No:
			l.pass(name, nil, "none; something else is in the way")
		default:
			l.pass(name, nil, "none; something else is not known")
		}
	})
	if len(l.found) == 0 {
		l.skip("no pair below a common bridge")
	}
}

// overRoot are the roots that the traffic of some pair meets, or may.
func (l *look) overRoot() map[string]bool {
	over := map[string]bool{}
	for _, p := range l.pairs {
		gpu, nic := p.GPU.Exporter.PCI, p.NIC.Importer.PCI
		if gpu != nil && nic != nil && p.Prediction.Decision.Type != MapBusAddress {
			over[l.function(*gpu).Bus], over[l.function(*nic).Bus] = true, true
		}
	}
	return over
}

// hostBridges asks for each root that a GPU or NIC is below.
func (l *look) hostBridges() {
	cpu := l.m.CPU.routes()
	if cpu == placement.Yes {
		l.pass("", []string{"/proc/cpuinfo"}, "%v: all host bridges are trusted", l.m.CPU)
		return
	}
	seen, over := map[string]bool{}, l.overRoot()
	for _, f := range l.endpoints() {
		if f.err != nil || seen[f.Bus] {
			continue
		}
		seen[f.Bus] = true
		h := l.m.hostOf(l.m.node(f.PCI))
		ok, why := l.m.Kernel.trusts(h, true)
		if cpu == placement.AnswerUnknown && ok == placement.No {
			ok, why = cpu, why+", and the processor is not known"
		}
		at := []string{"/sys/devices/" + f.Bus}
		switch {
		case ok == placement.Yes:
			l.pass(f.Bus, at, "%s", why)
		case !over[f.Bus]:
			l.say(ResultSkip, f.Bus, at, "%s; no pair here goes over it", why)
		case ok == placement.No && l.m.unswitched(f.PCI):
			l.warn(f.Bus, at, "%s; %s", why, inventedTree).fix(guestSwitch, "", "")
		case ok == placement.No:
			l.warn(f.Bus, at, "%s", why)
		default:
			l.unknown(f.Bus, at, "%s", why)
		}
	}
	if len(seen) == 0 {
		l.skip("no GPU and no NIC on PCI")
	}
}

func (l *look) cached() {
	for _, g := range l.gpus {
		if g.Exporter.PCI == nil {
			continue
		}
		f := l.function(*g.Exporter.PCI)
		there, where := l.there("sys", f.dir, "p2pmem")
		switch {
		case f.err != nil || there == placement.AnswerUnknown:
			l.unknown(f.name, where, "not known")
		case there == placement.Yes || slices.Contains(vfioDrivers, f.Driver):
			l.warn(f.name, where, "%s has peer-to-peer memory registered: the kernel keeps its decisions", f.Driver)
		case f.Driver == "":
			l.unknown(f.name, where, "no driver: whether one would have peer-to-peer memory registered is not known")
		case !g.Exporter.read():
			l.unknown(f.name, where, "%s is not a driver whose source was read: whether it asks anew each time is not known", f.Driver)
		default:
			l.pass(f.name, where, "the decision is made anew each time")
		}
	}
	if len(l.found) == 0 {
		l.skip("no GPU on PCI")
	}
}

// read reports a driver whose rules are known: the kernel's own, or NVIDIA's open
// modules, which never are that.
func (e Exporter) read() bool {
	switch e.Class {
	case ClassUnknown:
		return false
	case ClassNVIDIA, ClassNVIDIACoherent:
		return true
	}
	return !e.OutOfTree
}

func (l *look) nvidiaGate() {
	any := false
	l.perPair(func(p Pair) {
		if p.GPU.Exporter.Class != ClassNVIDIA {
			return
		}
		any = true
		name, at := p.name(), []string{"/proc/driver/nvidia/params"}
		switch {
		case p.Prediction.Errno == errno.ENOTSUPP:
			l.fail(name, at, "%s", strings.Join(p.Prediction.Why, "; "))
		case p.Prediction.Outcome == Direct || p.Prediction.Stage == StageDriver:
			l.pass(name, at, "it is let through")
		case p.Prediction.Outcome == OutcomeUnknown:
			l.unknown(name, at, "%s", strings.Join(p.Prediction.Why, "; ")).Remedy = p.Remedy.ofAll()
		}
	})
	if !any && len(l.found) == 0 {
		l.skip("no GPU of NVIDIA's")
	}
}

// coherent reports a processor that caches the memory of NVIDIA's GPUs. Grace has
// Neoverse V2, and so have others. No x86 does it; of another Arm core than those
// that are known it is not known.
func (l *look) coherent() placement.Answer {
	cpu := l.read("proc/cpuinfo")
	maker, _ := cpu.line("CPU implementer")
	part, _ := cpu.line("CPU part")
	switch core := maker + " " + part; {
	case l.m.CPU.Vendor != "":
		return placement.No
	case core == graceCore:
		return placement.Yes
	case slices.Contains(otherCores, core):
		return placement.No
	}
	return placement.AnswerUnknown
}

// graceCore is Neoverse V2, by maker and part. otherCores are N1, V1 and N2.
const graceCore = "0x41 0xd4f"

var otherCores = []string{"0x41 0xd0c", "0x41 0xd40", "0x41 0xd49"}

func (l *look) forcePCIe() {
	any := false
	apart, groups := map[string][]string{}, map[string]reading{}
	var order []string
	for _, p := range l.pairs {
		coherent := placement.No
		switch {
		case p.GPU.Exporter.Class == ClassNVIDIACoherent:
			coherent = placement.Yes
		case p.GPU.Exporter.Driver == "nvidia":
			coherent = l.coherent()
		}
		if coherent == placement.No || p.GPU.Exporter.PCI == nil || p.NIC.Importer.PCI == nil || p.NIC.Software {
			continue
		}
		any = true
		if coherent == placement.AnswerUnknown {
			l.unknown(p.GPU.Name, []string{"/proc/cpuinfo"}, "whether the processor caches the GPU's memory is not known")
			continue
		}
		one, g, n := l.oneGroup(*p.GPU.Exporter.PCI, *p.NIC.Importer.PCI)
		at := append(g.at(), n.at()...)
		switch {
		case one == placement.AnswerUnknown:
			l.unknown(p.name(), at, "%v", errors.Join(g.err, n.err))
		case one == placement.Yes && g.gone():
			l.pass(p.name(), at, "both in none: there is no IOMMU")
		case one == placement.Yes:
			l.pass(p.name(), at, "both in group %s", base(g.text))
		default:
			name := p.GPU.Name
			if apart[name] == nil {
				order, groups[name] = append(order, name), g
			}
			apart[name] = append(apart[name], fmt.Sprintf("%s (%s)", p.NIC.Name, cmp.Or(base(n.text), "none")))
		}
	}
	// A warning, for not more than the mapping with that flag is concerned: without it
	// the gate lets a coherent GPU pass, and the NIC goes over C2C. One finding a GPU.
	for _, name := range order {
		l.warn(name, groups[name].at(), "the GPU is in group %s, and these NICs are in others: %s", cmp.Or(base(groups[name].text), "none"), strings.Join(apart[name], ", "))
	}
	if !any {
		l.skip("no GPU whose memory the CPU caches")
	}
}

// oneGroup compares the IOMMU groups of two functions as NVIDIA's driver does: by
// pointers, of which two of none are equal.
func (l *look) oneGroup(a, b Addr) (one placement.Answer, g, n reading) {
	g, n = l.link("sys/bus/pci/devices", a.String(), "iommu_group"), l.link("sys/bus/pci/devices", b.String(), "iommu_group")
	switch {
	case g.err != nil && !g.gone() || n.err != nil && !n.gone():
		return placement.AnswerUnknown, g, n
	case g.gone() && n.gone(), g.err == nil && n.err == nil && base(g.text) == base(n.text):
		return placement.Yes, g, n
	}
	return placement.No, g, n
}

func (l *look) nearest() {
	byGPU := map[string][]Pair{}
	var order []string
	for _, p := range l.pairs {
		if p.NIC.Importer.PCI == nil || p.NIC.Software || p.GPU.Exporter.PCI == nil {
			continue
		}
		if byGPU[p.GPU.Name] == nil {
			order = append(order, p.GPU.Name)
		}
		byGPU[p.GPU.Name] = append(byGPU[p.GPU.Name], p)
	}
	if len(order) == 0 {
		l.skip("no pair on PCI")
	}
	rank := []string{"X", "PIX", "PXB", "PHB", "NODE", "SYS"}
	for _, name := range order {
		best, names := len(rank), []string{}
		for _, p := range byGPU[name] {
			i := slices.Index(rank, p.Letters.NVML)
			if i >= 0 && i < best {
				best, names = i, nil
			}
			if i == best {
				names = append(names, p.NIC.Name)
			}
		}
		switch {
		case best == len(rank), rank[best] == "NODE" && l.nodeOf(*byGPU[name][0].GPU.Exporter.PCI) < 0 && !l.oneNode():
			l.unknown(name, nil, "the nodes are not known")
		case rank[best] == "SYS":
			l.warn(name, nil, "all NICs are on another NUMA node: %s", strings.Join(names, ", ")).fix("put a NIC into a slot of the GPU's socket", "", "")
		default:
			l.pass(name, nil, "nearest (%s): %s", rank[best], strings.Join(names, ", "))
		}
	}
}

func (l *look) dmaMask() {
	any := false
	for _, n := range l.s.NICs {
		if n.Importer.PCI == nil || n.Software {
			continue
		}
		mask := l.read("sys/bus/pci/devices", n.Importer.PCI.String(), "dma_mask_bits")
		bits, ok := mask.number()
		for _, g := range l.gpus {
			if g.Exporter.PCI == nil {
				continue
			}
			any = true
			name := Pair{GPU: g, NIC: n}.name()
			bar, has := pci.LargestBAR(l.m.sys, *g.Exporter.PCI)
			translates, why := l.m.translationOf(n.Importer.PCI)
			switch {
			case translates == translated:
				l.pass(name, mask.at(), "%s", "the IOMMU translates")
			case ok && bits >= 64:
				l.pass(name, mask.at(), "64 bits")
			case !ok:
				l.unknown(name, mask.at(), "%s", orText(mask))
			case !has:
				l.unknown(name, []string{"/sys/bus/pci/devices/" + g.Exporter.PCI.String() + "/resource"}, "the GPU's BARs are not known")
			case (bar.Start+bar.Size-1)>>bits == 0:
				l.pass(name, mask.at(), "%d bits, and the BAR ends at %#x", bits, bar.Start+bar.Size-1)
			case translates == translationUnknown:
				l.unknown(name, mask.at(), "%s", why)
			default:
				fix := l.m.translate(*n.Importer.PCI)
				l.fail(name, mask.at(), "%d bits, and the BAR ends at %#x", bits, bar.Start+bar.Size-1).Remedy = &fix
			}
		}
	}
	if !any {
		l.skip("no pair on PCI")
	}
}

// orText is why a number could not be read, or what stood in its place.
func orText(r reading) string {
	if r.err != nil {
		return r.why()
	}
	return fmt.Sprintf("%q", r.text)
}

func base(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }
