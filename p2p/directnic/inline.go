// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/pciaddr"
)

// inline plans a machine whose GPUs share a switch of ConnectX with a NIC:
//
//	root port - … - switch port - switch port - NIC
//	                            - switch port - switch port - switch port - GPU
func (p *Plan) inline() {
	var found []crossing
	for _, gpu := range p.tree.of(gpuKind) {
		c, deviates := cross(gpu)
		if deviates != "" {
			p.unsupported("GPU %v: %s", gpu.Addr, deviates)
			return
		}
		found = append(found, c)
	}
	p.Shape = Inline
	guests, why := p.Guests, ""
	if guests == Unknown {
		guests, why = translating(found)
	}
	p.Guests = guests
	p.Why = "each GPU shares a switch of ConnectX with a NIC"
	if why != "" {
		p.Why += "; " + why
	}
	for _, c := range found {
		p.add(c.complex(guests, why))
	}
	p.others(func(k kind) Flags {
		if guests == Yes {
			return kernelDefault(k)
		}
		return open
	})
	if guests == Unknown {
		for i := range p.Ports {
			p.Ports[i] = undecided(p.Ports[i], why)
		}
	}
}

// crossing is a switch that has a NIC and a GPU below it.
type crossing struct {
	nics                   []*node
	gpu                    *node
	nicPort, gpuPort, root *node
}

func cross(gpu *node) (c crossing, deviates string) {
	c.gpu = gpu
	shared := gpu.above(switchKind).above(switchKind).above(switchKind).above(switchKind)
	if shared == nil {
		return c, "the four bridges above it are not all ports of ConnectX switches"
	}
	for n := shared.up; n != nil; n = n.up {
		if n.kind == anyRoot {
			c.root = n
			break
		}
	}
	if c.root == nil {
		return c, fmt.Sprintf("its switch %v has no root port above it, or one of Grace or Vera", shared.Addr)
	}
	for _, port := range shared.below {
		nic, display := port.has(nicKind), port.has(gpuKind)
		switch {
		case nic && display:
			return c, fmt.Sprintf("a GPU and a NIC are below port %v both", port.Addr)
		case nic && c.nicPort != nil:
			return c, fmt.Sprintf("NICs are below two ports of its switch, %v and %v", c.nicPort.Addr, port.Addr)
		case nic:
			c.nicPort = port
		case display && c.gpuPort != nil:
			return c, fmt.Sprintf("GPUs are below two ports of its switch, %v and %v", c.gpuPort.Addr, port.Addr)
		case display:
			c.gpuPort = port
		}
	}
	switch {
	case c.nicPort == nil:
		return c, fmt.Sprintf("no NIC is below its switch %v", shared.Addr)
	case !c.nicPort.kind.planned():
		return c, fmt.Sprintf("port %v (%04x:%04x) above the NIC is of no switch that is known", c.nicPort.Addr, c.nicPort.Vendor, c.nicPort.Device)
	}
	for _, n := range c.nicPort.descendants() {
		if n.kind == nicKind {
			c.nics = append(c.nics, n)
		}
	}
	for _, n := range []*node{c.nicPort, c.gpuPort, c.root} {
		if n.ACSErr == nil && !n.ACS.Present {
			return c, fmt.Sprintf("port %v has no ACS", n.Addr)
		}
	}
	return c, ""
}

// translating tells by the ATS capability of the NICs whether a machine is for guests.
func translating(found []crossing) (guests Tri, why string) {
	var with, without *node
	for _, c := range found {
		for _, n := range c.nics {
			switch {
			case !n.ATS.Known:
				return Unknown, fmt.Sprintf("the ATS capability of the NICs tells whether it is set up for guests, and that of %v could not be read", n.Addr)
			case n.ATS.Capable:
				with = n
			default:
				without = n
			}
		}
	}
	switch {
	case with != nil && without != nil:
		return Unknown, fmt.Sprintf("the ATS capability of the NICs tells whether it is set up for guests, and %v has it and %v does not", with.Addr, without.Addr)
	case with != nil:
		return Yes, "its NICs have ATS, which is the setup for guests"
	}
	return No, "its NICs have no ATS, which is the setup without guests"
}

func (c crossing) complex(guests Tri, why string) Complex {
	nicFlags, gpuFlags, rootFlags := open, open, open
	if guests == Yes {
		nicFlags, gpuFlags, rootFlags = translated, isolated, isolated
	}
	out := Complex{NICs: addrs(c.nics), NICsOK: Yes, GPUs: []pciaddr.Addr{c.gpu.Addr}, Ports: []PortPlan{
		c.nicPort.port(NICPort, nicFlags), c.gpuPort.port(GPUPort, gpuFlags), c.root.port(RootPort, rootFlags),
	}}
	if guests == Unknown {
		for i := range out.Ports {
			out.Ports[i] = undecided(out.Ports[i], why)
		}
	}
	for _, nic := range c.nics {
		out.Rules = append(out.Rules, inlineGroups(nic, c.gpu, guests, why), inlineATS(nic, guests, why))
	}
	return out
}

func undecided(p PortPlan, why string) PortPlan {
	return PortPlan{Addr: p.Addr, Role: p.Role, Have: p.Have, Why: unknownPort + why}
}

func inlineGroups(nic, gpu *node, guests Tri, why string) Rule {
	r := Rule{Kind: GroupRule, Functions: []pciaddr.Addr{nic.Addr, gpu.Addr}, Want: "NIC and GPU are in one IOMMU group, or both in none"}
	if guests == Yes {
		r.Want = "NIC and GPU are in IOMMU groups of their own"
	}
	lacks := nic.GroupKnown && nic.Group == "" || gpu.GroupKnown && gpu.Group == ""
	switch {
	case guests == Unknown:
		r.Want, r.Why = "", why
	case guests == Yes && lacks:
		r.OK, r.Why = No, fmt.Sprintf("%v or %v has no IOMMU group", nic.Addr, gpu.Addr)
	case !nic.GroupKnown || !gpu.GroupKnown:
		r.Why = "the IOMMU groups could not be read"
	case (nic.Group == gpu.Group) == (guests == No):
		r.OK = Yes
	case guests == Yes:
		r.OK, r.Why = No, fmt.Sprintf("both are in IOMMU group %s", nic.Group)
	default:
		r.OK, r.Why = No, fmt.Sprintf("%v is in IOMMU group %s, and %v in %s", nic.Addr, groupName(nic), gpu.Addr, groupName(gpu))
	}
	return r
}

func groupName(n *node) string {
	if n.Group == "" {
		return "none"
	}
	return n.Group
}

func inlineATS(nic *node, guests Tri, why string) Rule {
	r := Rule{Kind: ATSRule, Functions: []pciaddr.Addr{nic.Addr}}
	switch guests {
	case Unknown:
		r.Why = why
	case Yes:
		r = capability(r, nic, true)
	case No:
		r = capability(r, nic, false)
	}
	return r
}

// capability judges whether a NIC shows ATS, which its firmware decides.
func capability(r Rule, nic *node, want bool) Rule {
	r.Want = "the NIC has no ATS capability"
	if want {
		r.Want = "the NIC has the ATS capability"
	}
	switch {
	case !nic.ATS.Known:
		r.Why = fmt.Sprintf("whether %v has ATS could not be read", nic.Addr)
	case nic.ATS.Capable == want:
		r.OK = Yes
	case want:
		r.OK, r.Why = No, fmt.Sprintf("%v has no ATS", nic.Addr)
	default:
		r.OK, r.Why = No, fmt.Sprintf("%v has ATS", nic.Addr)
	}
	return r
}

// unique reports functions that are in IOMMU groups of their own.
func unique(functions []*node) (ok Tri, why string) {
	var seen []string
	unread := ""
	for _, n := range functions {
		switch {
		case !n.GroupKnown:
			unread = fmt.Sprintf("the IOMMU group of %v could not be read", n.Addr)
		case n.Group == "":
			return No, fmt.Sprintf("%v has no IOMMU group", n.Addr)
		case slices.Contains(seen, n.Group):
			return No, fmt.Sprintf("%v shares IOMMU group %s", n.Addr, n.Group)
		default:
			seen = append(seen, n.Group)
		}
	}
	if unread != "" {
		return Unknown, unread
	}
	return Yes, ""
}
