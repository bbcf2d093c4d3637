// SPDX-License-Identifier: Apache-2.0

package paircheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// Decision has the checks of the decision of the kernel and the drivers.
var Decision = []check.Check{
	{ID: "P2P-VERDICT", Title: "The kernel lets the NIC reach the GPU", Worst: p2p.ResultFail, Run: verdict, Links: []chain.Link{chain.Decision, chain.Fabric},
		Expect: "bus address, or through the host bridge", Why: "amdgpu, xe and vfio-pci follow this decision. NVIDIA's driver does not ask for it, but the hardware may still not route traffic that the kernel would refuse.",
		Fix: chain.Remedy{Change: "use a NIC below the GPU's switch"}, Ref: "calc_map_type_and_dist(), drivers/pci/p2pdma.c",
		ByHand: "p2pcheck topo --gpu GPU --nic NIC\ncat /sys/bus/pci/devices/GPU/numa_node"},
	{ID: "P2P-ACS-LIST", Title: "No port on the way redirects to the root", Worst: p2p.ResultFail, Run: acsList, Links: []chain.Link{chain.Decision, chain.Addresses, chain.Fabric},
		Expect: "neither request redirect, completion redirect nor egress control", Why: "A port that redirects sends traffic between two devices below one switch to the root, which may not send it back.",
		Fix: chain.Remedy{Change: "let the ports on the way pass peer-to-peer traffic", Command: "pci=disable_acs_redir=PORTS", Weakens: "devices below these ports reach each other past the IOMMU: not for machines that give them to different guests"}, Ref: "pci_bridge_has_acs_redir(), drivers/pci/p2pdma.c",
		ByHand: "sudo lspci -vvv -s PORT | grep ACSCtl"},
	{ID: "P2P-WHITELIST", Title: "The kernel trusts the host bridge", Worst: p2p.ResultWarn, Run: hostBridges, Links: []chain.Link{chain.Decision, chain.Fabric},
		Expect: "an AMD processor from Zen on, or a host bridge of the kernel's list", Why: "Traffic between two root ports goes through the root complex, and some root complexes do not pass it on. This matters for pairs without a common bridge, and for pairs with a port that redirects.",
		Fix: chain.Remedy{Change: "use NICs below the GPUs' switches: no software makes a root complex pass traffic"}, Ref: "pci_p2pdma_whitelist, drivers/pci/p2pdma.c",
		ByHand: "lspci -nn -s 0000:00:00.0\ngrep -m 3 -E 'vendor_id|cpu family|model' /proc/cpuinfo"},
	{ID: "P2P-CACHE", Title: "A changed ACS setting counts", Worst: p2p.ResultWarn, Run: cached, Links: []chain.Link{chain.Decision},
		Expect: "a GPU whose driver asks anew each time", Why: "The kernel keeps its decision for providers with registered peer-to-peer memory and for vfio-pci: a later change by setpci has no effect until the driver is bound again.",
		Fix: chain.Remedy{Change: "after a change of ACS, unbind and bind the GPU's driver, or reboot"}, Ref: "drivers/pci/p2pdma.c",
		ByHand: "ls -d /sys/bus/pci/devices/GPU/p2pmem"},
	{ID: "P2P-NV-GATE", Title: "NVIDIA's gate lets the NIC attach", Worst: p2p.ResultFail, Run: nvidiaGate, Links: []chain.Link{chain.Attach},
		Expect: "no ENOTSUPP (524)", Why: "On Grace's, Altra's and AmpereOne's chipsets NVIDIA's driver requires a common switch, unless the CPU caches the GPU's memory, and answers errno 524, which programs print as “Unknown error 524”.",
		Fix: chain.Remedy{Change: "use a NIC below the GPU's switch, or open the gate", Command: "options nvidia NVreg_GrdmaPciTopoCheckOverride=1", Weakens: "the hardware may not route the traffic: prove it before you rely on it"}, Ref: "nv_grdma_pci_topology_supported(), nv-pci.c; _checkP2pChipsetSupport(), osinit.c",
		ByHand: "grep GrdmaPciTopoCheckOverride /proc/driver/nvidia/params"},
	{ID: "P2P-NV-FORCEPCIE", Title: "A coherent GPU's PCIe mapping is let through", Worst: p2p.ResultWarn, Run: forcePCIe, Links: []chain.Link{chain.Attach},
		Expect: "GPU and NIC in one IOMMU group", Why: "For memory exported with the PCIe mapping flag NVIDIA's driver requires that both are in one IOMMU group, and answers ENOTSUPP (524) otherwise, which programs print as “Unknown error 524”. A parameter skips the comparison from 570 to 590.",
		Fix: chain.Remedy{Change: "for these NICs export without that flag: they then reach the memory over C2C"}, Ref: "nv_pci_is_valid_topology_for_direct_pci(), nv-pci.c; openucx/ucx#11571; Azure/azhpc-images#589; ai-dynamo/nixl#1694",
		ByHand: "readlink /sys/bus/pci/devices/GPU/iommu_group /sys/class/infiniband/NIC/device/iommu_group"},
	{ID: "P2P-DIST", Title: "Each GPU has a NIC near by", Worst: p2p.ResultWarn, Run: nearest, Links: []chain.Link{chain.Fabric},
		Expect: "a NIC below a common bridge or on the same NUMA node", Why: "A program that takes a farther NIC goes over the root, or over the link between sockets.",
		Fix: chain.Remedy{Change: "bind each GPU's traffic to the NIC that is nearest"}, Ref: "NVIDIA/nccl#1151",
		ByHand: "p2pcheck topo --gpu GPU"},
	{ID: "P2P-DMAMASK", Title: "The NIC can write the GPU's addresses", Worst: p2p.ResultFail, Run: dmaMask, Links: []chain.Link{chain.Addresses},
		Expect: "the BAR ends below the NIC's address bits, or an IOMMU translates", Why: "A NIC cannot reach a BAR whose addresses have more bits than the NIC supports.",
		Fix: chain.Remedy{Change: "let the firmware place the BARs lower, or let an IOMMU translate", Command: p2p.Translating, Weakens: p2p.UndoesPT}, Ref: "ROCm/ROCR-Runtime#355",
		ByHand: "cat /sys/class/infiniband/NIC/device/dma_mask_bits\ncat /sys/bus/pci/devices/GPU/resource"},
}

// verdict reports the kernel's decision for each pair whose exporter follows it. For a pair whose exporter does not
// ask, it reports whether the fabric carries the traffic.
func verdict(l *check.Look) {
	near := map[string]bool{} // GPUs with a NIC on their own node whose traffic passes
	for _, p := range l.Pairs {
		if node := pairNodes(l, p); passes(p) && node[0] == node[1] && node[0] >= 0 {
			near[p.GPU.Name] = true
		}
	}
	check.PerPair(l, func(p p2p.Pair) {
		d, name := p.Prediction.Decision, p.Name()
		link, why := p.Verdict.Link(chain.Decision), strings.Join(d.Why, "; ")
		switch {
		case p.NIC.Importer.PCI == nil || p.NIC.Importer.Kind == drivers.NoImporter:
			return // the checks of NICs report it
		case link.State == chain.NotAsked && !drivers.AsksKernel(p.GPU.Exporter), p.Prediction.ByPeerMem:
			notAsked(l, p, near[p.GPU.Name])
		case link.State.Good() && d.Supported == placement.Yes:
			supported(l, p, d.Type.String(), near[p.GPU.Name])
		case link.State == chain.Breaks || d.Supported == placement.No:
			l.Fail(name, nil, "%s", why).Remedy = p.Remedy
		case d.Supported == placement.Yes: // the pair breaks at an earlier link
			supported(l, p, d.Type.String(), near[p.GPU.Name])
		default:
			l.Unknown(name, nil, "%s", why).Remedy = p.Remedy.OfAll()
		}
	})
	if len(l.Found) == 0 {
		l.Skip("no NIC on PCI that imports dma-bufs")
	}
}

// passes reports whether the kernel allows the traffic of a pair, or bridges and root complex are known to carry
// it.
func passes(p p2p.Pair) bool {
	return p.Prediction.Decision.Supported == placement.Yes || carried(p)
}

// carried reports whether the traffic of a pair is known to pass bridges and root complex, or goes over C2C.
func carried(p p2p.Pair) bool {
	switch p.Verdict.Link(chain.Fabric).State {
	case chain.Holds, chain.Costs:
		return true
	case chain.NotAsked:
		return p.GPU.Exporter.Class == drivers.ClassNVIDIACoherent
	}
	return false
}

// notAsked adds the finding for a pair whose exporter does not ask for the kernel's decision. near says that the
// GPU has a NIC on its own node.
func notAsked(l *check.Look, p p2p.Pair, near bool) {
	d, name, asks := p.Prediction.Decision, p.Name(), exporterName(p)+" does not ask the kernel"
	why := strings.Join(d.Why, "; ")
	switch {
	case carried(p):
		supported(l, p, cmp.Or(p.Verdict.Link(chain.Fabric).Text(), asks), near)
	case d.Supported == placement.Yes:
		supported(l, p, d.Type.String(), near)
	case d.Supported == placement.AnswerUnknown:
		l.Unknown(name, nil, "%s, which does not know: %s", asks, why).Remedy = p.Remedy.OfAll()
	default:
		f := l.Warn(name, nil, "%s, which says: %s", asks, why)
		switch {
		case len(d.Redirects) > 0: // GPU and NIC are below one switch already
			f.Remedy = check.Opening(l, p)
		case p.GPU.Exporter.PCI != nil && l.Machine.Unswitched(*p.GPU.Exporter.PCI):
			f.Fix(machine.GuestSwitch, "", "")
		}
	}
}

// exporterName names the driver that exports the memory without the kernel's decision.
func exporterName(p p2p.Pair) string {
	if p.Prediction.ByPeerMem {
		return "the peer-memory client of " + p.GPU.Exporter.Driver
	}
	return p.GPU.Exporter.Class.String()
}

// supported adds the finding for a pair whose traffic passes. Over the link between sockets traffic is slower, and
// some processors do not pass it: supported warns about such a pair if the GPU has no NIC on its own node.
func supported(l *check.Look, p p2p.Pair, read string, near bool) {
	name, node := p.Name(), pairNodes(l, p)
	if check.Common(l, p) != nil || p.GPU.Exporter.Class == drivers.ClassNVIDIACoherent || node[0] < 0 || node[1] < 0 || node[0] == node[1] {
		l.Pass(name, nil, "%s", read)
		return
	}
	if !strings.Contains(read, "between sockets") {
		read = fmt.Sprintf("%s, and from node %d to node %d: over the link between sockets", read, node[0], node[1])
	}
	at := []string{"/sys/bus/pci/devices/" + p.GPU.Exporter.PCI.String() + "/numa_node", "/sys/bus/pci/devices/" + p.NIC.Importer.PCI.String() + "/numa_node"}
	if near {
		l.Pass(name, at, "%s", read)
		return
	}
	l.Warn(name, at, "%s", read).Fix("put a NIC into a slot of the GPU's socket", "", "").Expect = "bus address, or through the host bridge of one socket"
}

// pairNodes returns the NUMA nodes of a pair's functions; a node that is not known is negative.
func pairNodes(l *check.Look, p p2p.Pair) (node [2]int) {
	for i, a := range []*pciaddr.Addr{p.GPU.Exporter.PCI, p.NIC.Importer.PCI} {
		if node[i] = -1; a != nil {
			node[i] = check.NodeOf(l, *a)
		}
	}
	return node
}

// acsList reports the ports that redirect. Such ports break a pair in three cases: the kernel refuses the pair
// because of them; they send bus addresses to an IOMMU that has no mapping for these; or requests and completions
// take different ways.
func acsList(l *check.Look) {
	check.PerPair(l, func(p p2p.Pair) {
		d, name := p.Prediction.Decision, p.Name()
		if d.Common == nil {
			// Without a common bridge ACS does not decide. A hypervisor may hide the common bridge.
			if l.Machine.Virtual.Is == placement.Yes && p.Real() {
				l.Unknown(name, nil, "no common bridge is seen; %s", machine.InventedTree).Fix("look at the host", "", "")
			}
			return
		}
		if p.GPU.Exporter.Class == drivers.ClassNVIDIACoherent && p.Verdict.Link(chain.Fabric).State == chain.NotAsked {
			return // the traffic goes over C2C, and meets none of these ports
		}
		var on []string
		for _, r := range d.Redirects {
			on = append(on, r.String())
		}
		fix, ports := check.Opening(l, p), strings.Join(on, ", ")
		breaks := func(link chain.Link) bool { return p.Verdict.Link(link).State == chain.Breaks }
		switch {
		case len(on) > 0 && (breaks(chain.Decision) || breaks(chain.Addresses) && p.Prediction.Outcome == chain.Lost || breaks(chain.Fabric)):
			l.Fail(name, nil, "%s", ports).Remedy = fix
		case len(on) > 0 && !drivers.AsksKernel(p.GPU.Exporter) && p.Verdict.Link(chain.Fabric).State == chain.Holds:
			l.Pass(name, nil, "%s, which does not redirect the traffic of this pair", ports)
		case len(on) > 0 && !drivers.AsksKernel(p.GPU.Exporter) && !p2p.Gains(l.Machine, p):
			l.Warn(name, nil, "%s; something else is in the way", ports).Remedy = fix
		case len(on) > 0 && d.Supported == placement.No && drivers.AsksKernel(p.GPU.Exporter) && !p.Prediction.ByPeerMem:
			l.Fail(name, nil, "%s", ports).Remedy = fix
		case len(on) > 0 && d.Supported != placement.Yes && drivers.AsksKernel(p.GPU.Exporter) && !p.Prediction.ByPeerMem:
			l.Unknown(name, nil, "%s; whether the kernel allows the pair all the same is not known", ports).Remedy = fix
		case len(on) > 0:
			l.Warn(name, nil, "%s: the traffic goes over the root", ports).Remedy = fix
		case d.Unread != nil && d.Type != p2pdma.MapBusAddress:
			l.Unknown(name, nil, "%v", d.Unread).AsRoot(l.Machine)
		case d.Type == p2pdma.MapBusAddress:
			l.Pass(name, nil, "none")
		case d.Supported == placement.No:
			l.Pass(name, nil, "none; something else is in the way")
		default:
			l.Pass(name, nil, "none; another link is not known")
		}
	})
	if len(l.Found) == 0 {
		l.Skip("no pair below a common bridge")
	}
}

// overRoot returns the root buses that the traffic of some pair passes, or may pass.
func overRoot(l *check.Look) map[string]bool {
	over := map[string]bool{}
	for _, p := range l.Pairs {
		gpu, nic := p.GPU.Exporter.PCI, p.NIC.Importer.PCI
		if gpu != nil && nic != nil && p.Prediction.Decision.Type != p2pdma.MapBusAddress {
			over[l.Function(*gpu).Bus], over[l.Function(*nic).Bus] = true, true
		}
	}
	return over
}

// hostBridges judges each host bridge that has a GPU or NIC below it.
func hostBridges(l *check.Look) {
	cpu := l.Machine.CPU.Routes()
	if cpu == placement.Yes {
		l.Pass("", []string{"/proc/cpuinfo"}, "%v: all host bridges are trusted", l.Machine.CPU)
		return
	}
	seen, over := map[string]bool{}, overRoot(l)
	for _, f := range l.Endpoints() {
		if f.Err != nil || seen[f.Bus] {
			continue
		}
		seen[f.Bus] = true
		h := l.Machine.HostBridge(l.Machine.Node(f.PCI))
		ok, why := p2pdma.Trusts(l.Machine.Kernel, h, true)
		if cpu == placement.AnswerUnknown && ok == placement.No {
			ok, why = cpu, why+", and the processor is not known"
		}
		at := []string{"/sys/devices/" + f.Bus}
		switch {
		case ok == placement.Yes:
			l.Pass(f.Bus, at, "%s", why)
		case !over[f.Bus]:
			l.Say(p2p.ResultSkip, f.Bus, at, "%s; no pair here goes over it", why)
		case ok == placement.No && l.Machine.Unswitched(f.PCI):
			l.Warn(f.Bus, at, "%s; %s", why, machine.InventedTree).Fix(machine.GuestSwitch, "", "")
		case ok == placement.No:
			l.Warn(f.Bus, at, "%s", why)
		default:
			l.Unknown(f.Bus, at, "%s", why)
		}
	}
	if len(seen) == 0 {
		l.Skip("no GPU and no NIC on PCI")
	}
}

func cached(l *check.Look) {
	for _, g := range l.GPUs {
		if g.Exporter.PCI == nil {
			continue
		}
		f := l.Function(*g.Exporter.PCI)
		there, where := l.There("sys", f.Dir, "p2pmem")
		switch {
		case f.Err != nil || there == placement.AnswerUnknown:
			l.Unknown(f.Name, where, "not known")
		case there == placement.Yes || slices.Contains(drivers.VfioDrivers, f.Driver):
			l.Warn(f.Name, where, "%s has peer-to-peer memory registered: the kernel keeps its decisions", f.Driver)
		case f.Driver == "":
			l.Unknown(f.Name, where, "no driver: whether one would have peer-to-peer memory registered is not known")
		case !g.Exporter.Read():
			l.Unknown(f.Name, where, "%s is not a driver whose source was read: whether it asks anew each time is not known", f.Driver)
		default:
			l.Pass(f.Name, where, "the decision is made anew each time")
		}
	}
	if len(l.Found) == 0 {
		l.Skip("no GPU on PCI")
	}
}

func nvidiaGate(l *check.Look) {
	any := false
	check.PerPair(l, func(p p2p.Pair) {
		if p.GPU.Exporter.Class != drivers.ClassNVIDIA {
			return
		}
		any = true
		name, at := p.Name(), []string{"/proc/driver/nvidia/params"}
		attach := p.Verdict.Link(chain.Attach)
		switch {
		case attach.State == chain.Breaks && attach.Errno == errno.ENOTSUPP:
			l.Fail(name, at, "%s", strings.Join(p.Prediction.Why, "; "))
		case attach.State.Good():
			l.Pass(name, at, "it is let through")
		case attach.State == chain.Unknown && len(attach.Why) > 0:
			l.Unknown(name, at, "%s", attach.Text()).Remedy = p.Remedy.OfAll()
		}
	})
	if !any && len(l.Found) == 0 {
		l.Skip("no GPU of NVIDIA's")
	}
}

func nearest(l *check.Look) {
	byGPU := map[string][]p2p.Pair{}
	var order []string
	for _, p := range l.Pairs {
		if p.NIC.Importer.PCI == nil || p.NIC.Software || p.GPU.Exporter.PCI == nil {
			continue
		}
		if byGPU[p.GPU.Name] == nil {
			order = append(order, p.GPU.Name)
		}
		byGPU[p.GPU.Name] = append(byGPU[p.GPU.Name], p)
	}
	if len(order) == 0 {
		l.Skip("no pair on PCI")
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
		case best == len(rank), rank[best] == "NODE" && check.NodeOf(l, *byGPU[name][0].GPU.Exporter.PCI) < 0 && !check.OneNode(l):
			l.Unknown(name, nil, "the nodes are not known")
		case rank[best] == "SYS":
			l.Warn(name, nil, "all NICs are on another NUMA node: %s", strings.Join(names, ", ")).Fix("put a NIC into a slot of the GPU's socket", "", "")
		default:
			l.Pass(name, nil, "nearest (%s): %s", rank[best], strings.Join(names, ", "))
		}
	}
}

func dmaMask(l *check.Look) {
	any := false
	for _, n := range l.Subject.NICs {
		if n.Importer.PCI == nil || n.Software {
			continue
		}
		for _, p := range check.Select(l.Pairs, func(p p2p.Pair) bool { return p.NIC.Name == n.Name && p.GPU.Exporter.PCI != nil }) {
			any = true
			maskOf(l, p)
		}
	}
	if !any {
		l.Skip("no pair on PCI")
	}
}

// maskOf reports whether a NIC has enough address bits for a GPU's BAR. If the memory is mapped in an IOMMU, the
// NIC gets addresses that it can use. If NVIDIA's driver maps nothing in the IOMMU, the NIC gets the addresses of the
// BAR.
func maskOf(l *check.Look, p p2p.Pair) {
	gpu, nic, name := *p.GPU.Exporter.PCI, *p.NIC.Importer.PCI, p.Name()
	mask := l.Read("sys/bus/pci/devices", nic.String(), "dma_mask_bits")
	bits, ok := mask.Number()
	bar, has := l.Machine.LargestBAR(gpu)
	translates, why := l.Machine.TranslationOf(&nic)
	switch {
	case p.GPU.Exporter.Class == drivers.ClassNVIDIACoherent && p.Verdict.Link(chain.Addresses).State.Good():
		l.Pass(name, mask.At(), "the NIC reaches the memory over C2C, not by the BAR").Expect = ""
	case translates == machine.Translated && p.Prediction.Address != drivers.AddressBus:
		l.Pass(name, mask.At(), "the IOMMU translates")
	case ok && bits >= 64:
		l.Pass(name, mask.At(), "64 bits")
	case !ok:
		l.Unknown(name, mask.At(), "%s", check.OrText(mask))
	case !has:
		l.Unknown(name, []string{"/sys/bus/pci/devices/" + gpu.String() + "/resource"}, "the GPU's BARs are not known")
	case (bar.Start+bar.Size-1)>>bits == 0:
		l.Pass(name, mask.At(), "%d bits, and the BAR ends at %#x", bits, bar.Start+bar.Size-1)
	case translates == machine.TranslationUnknown:
		l.Unknown(name, mask.At(), "%s", why)
	default:
		fix := p2p.Translate(l.Machine, nic)
		l.Fail(name, mask.At(), "%d bits, and the BAR ends at %#x", bits, bar.Start+bar.Size-1).Remedy = &fix
	}
}
