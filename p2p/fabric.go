// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// fabric answers whether bridges and root complex carry the NIC's traffic to the addresses that it got.
// It does not ask for the kernel's decision: NVIDIA's driver does not either, and traffic to an address
// that an IOMMU translates goes to the root whatever the kernel decided.
func fabric(m *machine.Machine, e drivers.Exporter, i drivers.Importer, p drivers.Prediction) chain.Answer {
	switch {
	case p.Outcome == chain.Staged || p.Outcome == chain.Refused:
		return chain.Skip("") // nothing goes between the two
	case e.Class == drivers.ClassSystem:
		return chain.Skip("")
	case i.ByCPU:
		return chain.Skip("the CPU moves the data")
	case e.Class == drivers.ClassNVIDIACoherent && m.Virtual.Is == placement.No:
		return chain.Skip("the NIC reaches the memory over the processor (C2C), as it reaches the host's")
	case e.PCI == nil || i.PCI == nil:
		return chain.Open("which PCI functions move the data is not known")
	case m.Virtual.Is == placement.Yes:
		return chain.Open("%s, and the host's ports decide", machine.InventedTree).With(file(m.Virtual.Where), "%s", m.Virtual.Why).
			Fix(&chain.Remedy{Change: "try the pair, or look at the host's ports", Command: tryPair(e)})
	case m.Virtual.Is != placement.No:
		return chain.Open("whether this is a virtual machine is not known, and in one the host's ports decide: %s", m.Virtual.Why).With(file(m.Virtual.Where), "")
	}
	if drivers.MayBeCoherent(m, e) {
		return chain.Open("whether the NIC reaches the memory over PCI Express or over the processor (C2C) is not known").With("/sys/bus/pci/devices/"+e.PCI.String()+"/device", "a GPU of Grace, or one that may be below its port")
	}
	if p.Address == drivers.AddressIOVA {
		return overIOMMU(m, e, i)
	}
	way := p2pdma.Path(m, *e.PCI, *i.PCI)
	switch {
	case way.Common == nil && way.Unread != nil:
		return chain.Open("%v", way.Unread)
	case way.Common == nil:
		return overRoot(m, e, *i.PCI)
	}
	return belowBridge(m, e, i, way)
}

// file is the first of some files.
func file(where []string) string {
	if len(where) == 0 {
		return ""
	}
	return where[0]
}

// tryPair is the command that proves a pair of this GPU.
func tryPair(e drivers.Exporter) string {
	if e.PCI == nil {
		return ""
	}
	return "p2pcheck --live --gpu " + e.PCI.String() + " --nic " + anyNIC
}

// overIOMMU answers for addresses that an IOMMU has made: they match no window below a switch, so that
// all traffic goes to the root and back. A NIC with ATS asks the IOMMU for the physical addresses, and its
// traffic goes the way of these as well.
func overIOMMU(m *machine.Machine, e drivers.Exporter, i drivers.Importer) chain.Answer {
	const way = "the addresses are the IOMMU's: the traffic goes to the root and back"
	gpu, nic := *e.PCI, *i.PCI
	order, err := nicOrder(m, nic)
	if err != nil {
		return chain.Open("%s if the NIC has ATS off, and whether it has is not known: %v", way, err).Fix(readAgain(m, err, onlyRootReadsNIC))
	}
	if order.ats {
		if bad := translated(m, e, i); !bad.State.Good() {
			return bad
		}
	}
	if bad, ok := blocking(m, rootPorts(m, gpu, nic)); ok {
		return bad
	}
	passes, why := p2pdma.RootPasses(m, gpu, nic)
	fix := passDMA(m)
	fix.Direct = passes == placement.Yes
	if passes == placement.Yes {
		return withRoot(m, chain.Cost("%s", way), why).Fix(fix)
	}
	return chain.Open("%s, and whether the root passes it is not known: %s", way, why).Fix(fix)
}

// translated answers for requests that a NIC has translated by ATS: they have the physical addresses.
func translated(m *machine.Machine, e drivers.Exporter, i drivers.Importer) chain.Answer {
	switch way := p2pdma.Path(m, *e.PCI, *i.PCI); {
	case way.Common != nil:
		return belowBridge(m, e, i, way)
	case way.Unread != nil:
		return chain.Open("%v", way.Unread)
	}
	ports := m.Node(*i.PCI).Up
	if bad, ok := blocking(m, ports); ok {
		return bad
	}
	if bad, ok := blocksTranslated(m, *i.PCI, ports); ok {
		return bad
	}
	return chain.Hold("")
}

// blocksTranslated answers for a port above the NIC that blocks translated requests, which a NIC with ATS
// on can send.
func blocksTranslated(m *machine.Machine, nic pciaddr.Addr, up []pciaddr.Addr) (chain.Answer, bool) {
	for _, a := range up {
		c := m.Node(a).ACS
		if !c.Present || c.Ctrl&pci.ACSTranslationBlock == 0 {
			continue
		}
		at, value := "/sys/bus/pci/devices/"+a.String()+"/config", fmt.Sprintf("ACS control %#x", uint16(c.Ctrl))
		switch sends, err := nicOrder(m, nic); {
		case err != nil:
			return chain.Open("%v blocks requests that a NIC with ATS has translated, and whether the NIC has ATS on is not known: %v", a, err).With(at, "%s", value).Fix(readAgain(m, err, onlyRootReadsNIC)), true
		case sends.ats:
			return chain.Open("%v blocks requests that a NIC with ATS has translated, and the NIC has ATS on", a).With(at, "%s", value), true
		}
	}
	return chain.Answer{}, false
}

// overRoot answers for two functions without a common bridge.
func overRoot(m *machine.Machine, e drivers.Exporter, nic pciaddr.Addr) chain.Answer {
	gpu := *e.PCI
	if e.Driver == "nvidia" && drivers.RootWithoutPeers(m) == placement.Yes {
		return chain.Break(chain.Broken, "no bridge is above both, and by NVIDIA's driver, this processor's root complex cannot pass peer-to-peer traffic").
			Fix(&chain.Remedy{Change: fmt.Sprintf("use a NIC below one PCI switch with %v", gpu), Direct: true})
	}
	if bad := cmp.Or(p2pdma.RootFaulty(m, gpu), p2pdma.RootFaulty(m, nic)); bad != "" {
		return chain.Break(chain.Broken, "no bridge is above both, and the root complex does not pass all peer-to-peer traffic: %s", bad).
			Fix(&chain.Remedy{Change: fmt.Sprintf("use a NIC below one PCI switch with %v", gpu), Direct: true})
	}
	if bad, ok := blocking(m, rootPorts(m, gpu, nic)); ok {
		return bad
	}
	if bad, ok := blocksTranslated(m, nic, m.Node(nic).Up); ok {
		return bad
	}
	passes, why := p2pdma.RootPasses(m, gpu, nic)
	if passes != placement.Yes {
		return chain.Open("no bridge is above both, and whether the root complex passes the traffic is not known: %s", why).
			Fix(&chain.Remedy{Change: fmt.Sprintf("try the pair, or use a NIC below one PCI switch with %v", gpu), Command: tryPair(e)})
	}
	a, errA := pci.ReadFunction(m.Sys, gpu)
	b, errB := pci.ReadFunction(m.Sys, nic)
	if errA == nil && errB == nil && a.NUMANode >= 0 && b.NUMANode >= 0 && a.NUMANode != b.NUMANode {
		return withRoot(m, chain.Cost("over the root complex, and from node %d to node %d over the link between sockets", a.NUMANode, b.NUMANode), why)
	}
	return withRoot(m, chain.Hold("over the root complex"), why)
}

// withRoot adds why the root complex passes the traffic, which the processor's model or the ID of the host
// bridge says.
func withRoot(m *machine.Machine, a chain.Answer, why string) chain.Answer {
	if m.TrustsAll || m.CPU.Routes() == placement.Yes {
		return a.With("/proc/cpuinfo", "%s", why)
	}
	return a.With("/sys/bus/pci/devices", "%s", why)
}

// belowBridge answers for two functions below one bridge: the ports below it decide where requests
// and completions go.
func belowBridge(m *machine.Machine, e drivers.Exporter, i drivers.Importer, way p2pdma.Decision) chain.Answer {
	if way.Unread != nil {
		return chain.Open("%v", way.Unread).Fix(readAgain(m, way.Unread, onlyRootReadsACS))
	}
	if len(way.Notes) > 0 {
		return chain.Open("%s", way.Notes[0])
	}
	ofNIC, ofGPU := portsBelow(m, *i.PCI, *way.Common), portsBelow(m, *e.PCI, *way.Common)
	ports := slices.Concat(ofGPU, ofNIC, []pciaddr.Addr{*way.Common})
	if bad, ok := blocking(m, ports); ok {
		return bad
	}
	if bad, ok := blocksTranslated(m, *i.PCI, append(ofNIC, *way.Common)); ok {
		return bad
	}
	nic, err := nicOrder(m, *i.PCI)
	worst, bits := RouteGood, control(m, *way.Common)
	at, redirects := *way.Common, false
	for _, a := range ports {
		redirects = redirects || m.Node(a).ACS.Redirects() != 0
		if r := routeOfPort(control(m, a), nic); r > worst {
			worst, bits, at = r, control(m, a), a
		}
	}
	route := routeBetween(m, ofNIC, ofGPU, *way.Common, nic)
	switch {
	case m.NoRedirects || !redirects && len(way.Redirects) == 0:
		return chain.Hold("%s, and no port on the way redirects", common(way)).With("/sys/bus/pci/devices/"+way.Common.String()+"/config", "ACS")
	case err != nil:
		return chain.Open("%s a port redirects, and how the NIC orders its requests is not known: %v", common(way), err).Fix(readAgain(m, err, onlyRootReadsNIC))
	case route == RouteGood:
		return chain.Hold("%s, and no port redirects the traffic of this pair: the NIC's requests or the GPU's answers", common(way)).
			With("/sys/bus/pci/devices/"+at.String()+"/config", "ACS control %#x", uint16(bits))
	case route != worst:
		return chain.Open("%s, ports on the NIC's side and on the GPU's side redirect differently, and whether all of the traffic arrives is not known", common(way)).
			With("/sys/bus/pci/devices/"+at.String()+"/config", "ACS control %#x", uint16(bits)).Fix(opened(m, way))
	case route == RouteLost:
		return chain.Break(chain.Lost, "%s, %v sends requests and completions different ways (%v)", common(way), at, bits&redirecting).
			With("/sys/bus/pci/devices/"+at.String()+"/config", "ACS control %#x", uint16(bits)).Fix(cmp.Or(PlannedRemedy(m, []string{at.String()}), RouteRemedy(bits, nic.ats, nic.relaxed)))
	}
	switch route {
	case RouteTranslated:
		return chain.Hold("%s, and the NIC sends the requests that its ports redirect translated (ATS)", common(way))
	case RouteOpen:
		return chain.Open("%s, %v redirects (%v): the traffic arrives if the application registers memory with relaxed ordering, and may get lost otherwise", common(way), at, bits&redirecting).
			Fix(opened(m, way))
	}
	if bad, ok := blocking(m, m.Node(*way.Common).Up); ok { // the ports that redirected traffic passes
		return bad
	}
	passes, why := p2pdma.RootPasses(m, *e.PCI, *i.PCI)
	if passes != placement.Yes {
		return chain.Open("%s a port redirects to the root, and whether the root complex sends the traffic back is not known: %s", common(way), why).Fix(opened(m, way))
	}
	return withRoot(m, chain.Cost("%s a port redirects: the traffic goes to the root and back", common(way)), why).Fix(opened(m, way))
}

// common names the bridge above both.
func common(way p2pdma.Decision) string { return fmt.Sprintf("below the bridge %v", *way.Common) }

// blocking answers for ports that may block traffic: those whose ACS was not read, and those with egress
// control, which blocks traffic to other ports by a vector that no file shows.
func blocking(m *machine.Machine, ports []pciaddr.Addr) (chain.Answer, bool) {
	for _, a := range ports {
		n := m.Node(a)
		at := "/sys/bus/pci/devices/" + a.String() + "/config"
		switch c := n.ACS; {
		case n.ACSErr != nil: // other ports that were read say nothing about this one
			return chain.Open("whether %v redirects is not known: %v", a, n.ACSErr).With(at, "not read").Fix(readAgain(m, n.ACSErr, onlyRootReadsACS)), true
		case n.NoECAM:
			return chain.Open("whether %v redirects is not known: %v", a, errNoExtended).With(at, "256 bytes"), true
		case c.Present && c.Ctrl&pci.ACSEgressControl != 0:
			return chain.Open("%v has egress control on, and which ports it blocks is not known", a).
				With(at, "ACS control %#x", uint16(c.Ctrl)).
				Fix(&chain.Remedy{Change: "turn the port's egress control off"}), true
		}
	}
	return chain.Answer{}, false
}

// rootPorts are the bridges right below the host bridge of both functions.
func rootPorts(m *machine.Machine, gpu, nic pciaddr.Addr) []pciaddr.Addr {
	var out []pciaddr.Addr
	for _, end := range []pciaddr.Addr{gpu, nic} {
		if up := m.Node(end).Up; len(up) > 0 {
			out = append(out, up[len(up)-1])
		}
	}
	return out
}

// opened is the remedy for ports that redirect.
func opened(m *machine.Machine, way p2pdma.Decision) *chain.Remedy {
	ports := Redirecting([]Pair{{Prediction: drivers.Prediction{Decision: way}}})
	if r := PlannedRemedy(m, ports); r != nil {
		return r
	}
	r := OpenPorts(m, ports)
	r.Direct = true
	return &r
}

// portsBelow are the bridges from a function up to another one, without that.
func portsBelow(m *machine.Machine, end, common pciaddr.Addr) []pciaddr.Addr {
	up := m.Node(end).Up
	return slices.Clip(up[:max(slices.Index(up, common), 0)])
}

// control is the ACS control of a port: 0 of one that has none.
func control(m *machine.Machine, port pciaddr.Addr) pci.ACSBits {
	if n := m.Node(port); n.ACS.Present {
		return n.ACS.Ctrl
	}
	return 0
}

// routeBetween is the route of a pair below a bridge. A port redirects what it receives from below: the
// NIC's ports receive requests, and the GPU's ports the completions of reads. Of the bridge above both, the
// bits count for each.
func routeBetween(m *machine.Machine, ofNIC, ofGPU []pciaddr.Addr, common pciaddr.Addr, nic order) Route {
	requests, completions, translated := false, false, true
	for _, a := range append(ofNIC, common) {
		if c := control(m, a); c&pci.ACSRequestRedirect != 0 {
			requests, translated = true, translated && c&pci.ACSDirectTranslated != 0
		}
	}
	for _, a := range append(ofGPU, common) {
		completions = completions || control(m, a)&pci.ACSCompletionRedirect != 0
	}
	return RouteOf(completions, requests, translated, nic.ats, nic.relaxed)
}
