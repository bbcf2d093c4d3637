// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Shape is how GPUs and ConnectX NICs of a machine are connected.
type Shape int

// The shapes.
const (
	// None is a machine whose ports need no certain ACS.
	None Shape = iota
	// DataDirect has DMA functions of ConnectX beside the GPUs, below Grace.
	DataDirect
	// Inline has GPU and NIC below one switch of ConnectX.
	Inline
	// NUMA has the GPUs on root ports of Grace or Vera, and NICs on others.
	NUMA
	// Unsupported has parts of a shape and deviates from it, so that the values for
	// its ports are not known. rdma_topo fails on such a machine, and its
	// write-grub-acs may then delete the file that it wrote before.
	Unsupported
)

var shapeNames = []string{"none", "Data Direct", "inline", "NUMA", "unsupported"}

// String names the shape.
func (s Shape) String() string {
	if s < 0 || int(s) >= len(shapeNames) {
		return fmt.Sprintf("invalid (%d)", int(s))
	}
	return shapeNames[s]
}

// Role is the part that a port plays.
type Role int

// The roles.
const (
	OtherPort Role = iota
	DMAPort        // the port toward the DMA function, of the switch that DMA function and GPU share
	NICPort        // the port toward the NIC, of the switch that NIC and GPU share
	GPUPort        // the port of that switch toward the GPU
	RootPort       // the root port above that switch
)

var roleNames = []string{"other port", "port toward the DMA function", "port toward the NIC", "port toward the GPU", "root port"}

// String names the role.
func (r Role) String() string {
	if r < 0 || int(r) >= len(roleNames) {
		return fmt.Sprintf("invalid (%d)", int(r))
	}
	return roleNames[r]
}

// PortPlan is the ACS that a port should have, and the ACS that it has.
type PortPlan struct {
	Addr pciaddr.Addr
	Role Role
	Want Flags
	// Decided is false if Want is not known: the machine is Unsupported, or it is
	// not known whether it is for guests.
	Decided bool
	Have    pci.ACSBits // 0 if it could not be read
	OK      Tri         // whether the port has what Want decides
	Why     string      // the difference, or the reason for Unknown; "" if OK is Yes
	// Default says that the kernel sets Want by itself where there is an IOMMU.
	// write-grub-acs leaves such ports out.
	Default bool
}

// Complex is a group of NICs, GPUs and the ports between them, which the plan sets up
// together.
type Complex struct {
	DMA    *pciaddr.Addr // the DMA function; nil in other shapes than DataDirect
	NICs   []pciaddr.Addr
	NICsOK Tri // Yes if NICs are all NICs of the card, No if the card has none, Unknown if the VPD that names the card was not read
	GPUs   []pciaddr.Addr
	Ports  []PortPlan // on the way between them
	Rules  []Rule
	Node   int // the NUMA node, of shape NUMA
}

// OK says whether the ports and rules of the complex are as they should be.
func (c Complex) OK() Tri {
	var answers []Tri
	for _, p := range c.Ports {
		answers = append(answers, p.OK)
	}
	for _, r := range c.Rules {
		answers = append(answers, r.OK)
	}
	return all(answers...)
}

// RuleKind says which facts a rule compares.
type RuleKind int

// The kinds of rules.
const (
	GroupRule RuleKind = iota // IOMMU groups
	ATSRule                   // the ATS capability of NICs
)

// Rule is a condition of the plan besides the ACS of ports.
type Rule struct {
	Kind      RuleKind
	Functions []pciaddr.Addr
	Want      string
	OK        Tri
	Why       string // the difference, or the reason for Unknown; "" if OK is Yes
}

// Plan says how a machine should be set up, and in what the machine differs.
type Plan struct {
	Shape     Shape
	Why       string     // the reason for the shape, or the first deviation from it
	Guests    Tri        // of shape Inline: whether it is set up for guests
	Complexes []Complex  // by DMA function, by GPU or by NUMA node
	Ports     []PortPlan // all ports that the plan decides, by address
	Remedy    Remedy

	tree *tree
}

// Look returns the plan of a machine with these PCI functions, which must be all of
// the machine. guests says whether the devices of a machine of shape Inline are for
// guests; if that is Unknown, the ATS capability of the NICs decides, as in
// rdma_topo.
func Look(functions []Function, guests Tri) Plan {
	t := grow(functions)
	p := Plan{tree: t, Guests: guests}
	inline := len(t.of(switchKind)) > 0 && len(t.of(gpuKind)) > 0 && len(t.of(nicKind)) > 0
	root := t.gpuOnRoot()
	switch {
	case len(t.of(dmaKind)) > 0:
		p.dataDirect()
	case root != nil && root.up.kind != anyRoot:
		p.numa()
	case root != nil && inline:
		// rdma_topo counts this as NUMA, and gives the ports of the switch other
		// values than a GPU below the switch needs.
		p.unsupported("GPU %v is on a root port, and a switch of ConnectX is there, too: the values of the two shapes contradict each other", root.Addr)
	case root != nil:
		// rdma_topo counts this as NUMA, too. It finds no port to set there, and
		// rdma-core#1779 made its other rules for Grace and Vera.
		p.Why = fmt.Sprintf("GPU %v is on a root port of a processor that is neither Grace nor Vera", root.Addr)
	case inline:
		p.inline()
	default:
		p.Why = "no DMA function of ConnectX, no switch of ConnectX with a GPU and a NIC, no GPU on a root port of Grace or Vera"
	}
	slices.SortFunc(p.Ports, func(a, b PortPlan) int { return compare(a.Addr, b.Addr) })
	p.Remedy = p.remedy()
	return p
}

// gpuOnRoot is a GPU that is on a root port, on one of Grace or Vera if there is one.
func (t *tree) gpuOnRoot() *node {
	var found *node
	for _, g := range t.of(gpuKind) {
		switch {
		case g.up == nil || !g.up.kind.root():
		case g.up.kind != anyRoot:
			return g
		case found == nil:
			found = g
		}
	}
	return found
}

// unsupported makes a plan that decides no port. It has all ports that a shape would
// decide, so that Covers keeps other rules from them.
func (p *Plan) unsupported(format string, args ...any) {
	p.Shape, p.Why = Unsupported, fmt.Sprintf(format, args...)
	p.Complexes, p.Ports = nil, nil
	for _, n := range p.tree.all {
		if n.kind.planned() && (n.ACSErr != nil || n.ACS.Present) {
			p.Ports = append(p.Ports, PortPlan{Addr: n.Addr, Have: n.ACS.Ctrl, Why: unknownPort + p.Why})
		}
	}
}

const unknownPort = "the value for this port is not known: "

// others adds the ports that no complex has.
func (p *Plan) others(want func(kind) Flags) {
	for _, n := range p.tree.all {
		if n.kind.planned() && (n.ACSErr != nil || n.ACS.Present) && !p.Covers(n.Addr) {
			p.Ports = append(p.Ports, n.port(OtherPort, want(n.kind)))
		}
	}
}

// add puts a complex and its ports into the plan. Two complexes may share ports.
func (p *Plan) add(c Complex) {
	p.Complexes = append(p.Complexes, c)
	for _, port := range c.Ports {
		if !p.Covers(port.Addr) {
			p.Ports = append(p.Ports, port)
		}
	}
}

// port judges the ACS of a port.
func (n *node) port(role Role, want Flags) PortPlan {
	p := PortPlan{Addr: n.Addr, Role: role, Want: want, Decided: true, Have: n.ACS.Ctrl, Default: want == kernelDefault(n.kind)}
	on, off := want.missing(p.Have), want.surplus(p.Have)
	switch {
	case n.ACSErr != nil:
		p.Have, p.Why = 0, fmt.Sprintf("its ACS could not be read: %v", n.ACSErr)
	case !n.ACS.Present:
		p.Why = "it has no ACS"
	case on == 0 && off == 0:
		p.OK = Yes
	case on == 0:
		p.OK, p.Why = No, fmt.Sprintf("%v must be off", off)
	case off == 0:
		p.OK, p.Why = No, fmt.Sprintf("%v must be on", on)
	default:
		p.OK, p.Why = No, fmt.Sprintf("%v must be on, and %v off", on, off)
	}
	if cannot := on &^ n.ACS.Cap; p.OK == No && cannot != 0 {
		p.Why += fmt.Sprintf("; the port has no %v", cannot)
	}
	return p
}

// Port returns the PortPlan of a port; false for a port that the plan does not have.
func (p Plan) Port(a pciaddr.Addr) (PortPlan, bool) {
	i := slices.IndexFunc(p.Ports, func(port PortPlan) bool { return port.Addr == a })
	if i < 0 {
		return PortPlan{}, false
	}
	return p.Ports[i], true
}

// Covers reports whether the plan decides the ACS of a port, or would decide it if
// the machine were not Unsupported. For such a port the caller proposes the plan's
// Remedy, and neither pci=disable_acs_redir= nor another way to clear bits.
func (p Plan) Covers(port pciaddr.Addr) bool {
	_, ok := p.Port(port)
	return ok
}

// Keeps reports whether the plan needs any of these bits to be on in a port, or may need
// one because the port's value is not decided.
func (p Plan) Keeps(port pciaddr.Addr, bits pci.ACSBits) bool {
	planned, ok := p.Port(port)
	return ok && (!planned.Decided || planned.Want.Value&bits != 0 || planned.OK == Yes && planned.Have&bits != 0)
}

// Complex finds the complex of a NIC and a GPU. The address of the DMA function may
// stand for the NIC. It returns false unless the two are known to be in one complex.
func (p Plan) Complex(nic, gpu pciaddr.Addr) (Complex, bool) {
	i := slices.IndexFunc(p.Complexes, func(c Complex) bool {
		return slices.Contains(c.GPUs, gpu) && (slices.Contains(c.NICs, nic) || c.DMA != nil && *c.DMA == nic)
	})
	if i < 0 {
		return Complex{}, false
	}
	return p.Complexes[i], true
}

// OK says whether all ports and rules are as they should be. It is Unknown for shape
// None, which has nothing to judge, and for an Unsupported machine.
func (p Plan) OK() Tri {
	var answers []Tri
	for _, port := range p.Ports {
		answers = append(answers, port.OK)
	}
	for _, c := range p.Complexes {
		answers = append(answers, c.OK())
	}
	return all(answers...)
}
