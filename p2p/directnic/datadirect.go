// SPDX-License-Identifier: Apache-2.0

package directnic

import (
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// dataDirect plans a machine with DMA functions. Each must be in exactly this tree,
// with nothing else below the root port:
//
//	root port of Grace - switch port - switch port - DMA function
//	                                 - switch port - switch port - switch port - GPU
//
// rdma_topo stops at the first DMA function that deviates, and so does the plan.
func (p *Plan) dataDirect() {
	for _, dma := range p.tree.of(dmaKind) {
		c, deviates := p.besides(dma)
		if deviates != "" {
			p.unsupported("DMA function %v: %s", dma.Addr, deviates)
			return
		}
		p.add(c)
	}
	p.Shape = DataDirect
	p.Why = "each DMA function of ConnectX is beside one GPU below a root port of Grace"
	p.others(kernelDefault)
}

// besides makes the complex of a DMA function, or says how its tree deviates.
func (p *Plan) besides(dma *node) (c Complex, deviates string) {
	port := dma.above(switchKind)
	shared := port.above(switchKind)
	root := shared.above(graceRoot)
	if root == nil {
		if r := shared.above(veraRoot); r != nil {
			return c, fmt.Sprintf("it is below root port %v of Vera, and the values are known below Grace only", r.Addr)
		}
		return c, "the bridges above it are not a port and an upstream port of a ConnectX switch and a root port of Grace"
	}
	var gpus []*node
	for _, n := range root.descendants() {
		if n.kind == gpuKind {
			gpus = append(gpus, n)
		}
	}
	if len(gpus) != 1 {
		return c, fmt.Sprintf("%d GPUs are below its root port %v, not one", len(gpus), root.Addr)
	}
	gpu := gpus[0]
	lower := gpu.above(switchKind)
	second := lower.above(switchKind)
	gpuPort := second.above(switchKind)
	if gpuPort.above(switchKind) != shared {
		return c, fmt.Sprintf("the bridges between GPU %v and the shared switch are not three ports of ConnectX switches", gpu.Addr)
	}
	parts := []*node{dma, port, shared, gpu, lower, second, gpuPort}
	for _, n := range root.descendants() {
		if !slices.Contains(parts, n) {
			return c, fmt.Sprintf("%v (%04x:%04x) is below root port %v as well", n.Addr, n.Vendor, n.Device, root.Addr)
		}
	}
	for _, part := range []struct {
		*node
		want pci.Port
	}{
		{root, pci.PortRoot}, {shared, pci.PortUpstream}, {port, pci.PortDownstream},
		{gpuPort, pci.PortDownstream}, {second, pci.PortUpstream}, {lower, pci.PortDownstream},
	} {
		if !part.fits(part.want) {
			return c, fmt.Sprintf("%v is a PCI Express port of another type than its place asks for", part.Addr)
		}
	}
	for _, n := range []*node{port, gpuPort, root} {
		if n.ACSErr == nil && !n.ACS.Present {
			return c, fmt.Sprintf("port %v has no ACS", n.Addr)
		}
	}
	c = Complex{
		DMA: &dma.Addr, GPUs: []pciaddr.Addr{gpu.Addr},
		Ports: []PortPlan{port.port(DMAPort, dmaPortFlags), gpuPort.port(GPUPort, besideDMA), root.port(RootPort, aboveDMA)},
		Rules: []Rule{sameGroup(dma, gpu)},
	}
	var nics []*node
	nics, c.NICsOK = p.tree.cardOf(dma)
	c.NICs = addrs(nics)
	switch {
	case dma.VPDRead && dma.Card == "":
		return c, "its VPD has no keyword V3, which names its card"
	case c.NICsOK == No:
		return c, "no NIC has the card in its VPD that this function has (keyword V3)"
	}
	return c, ""
}

// cardOf are the NICs of a DMA function's card: those with the same V3 in their VPD.
// It is Yes if all VPD was read and there are any, and No if there are none.
func (t *tree) cardOf(dma *node) (nics []*node, ok Tri) {
	unread := !dma.VPDRead
	for _, n := range t.of(nicKind) {
		switch {
		case !n.VPDRead:
			unread = true
		case n.Card != "" && n.Card == dma.Card:
			nics = append(nics, n)
		}
	}
	if unread {
		return nics, Unknown
	}
	return nics, answer(len(nics) > 0)
}

// sameGroup is the rule for a DMA function and its GPU: NVIDIA's driver compares
// the groups.
func sameGroup(dma, gpu *node) Rule {
	r := Rule{Kind: GroupRule, Functions: []pciaddr.Addr{dma.Addr, gpu.Addr}, Want: "the DMA function and the GPU are in one IOMMU group"}
	switch {
	case dma.GroupKnown && dma.Group == "", gpu.GroupKnown && gpu.Group == "":
		r.OK, r.Why = No, fmt.Sprintf("%v or %v has no IOMMU group", dma.Addr, gpu.Addr)
	case !dma.GroupKnown || !gpu.GroupKnown:
		r.Why = "the IOMMU groups could not be read"
	case dma.Group != gpu.Group:
		r.OK, r.Why = No, fmt.Sprintf("%v is in IOMMU group %s, and %v in %s", dma.Addr, dma.Group, gpu.Addr, gpu.Group)
	default:
		r.OK = Yes
	}
	return r
}

// Mover is the DMA function that moves the data of a NIC for programs that register
// by mlx5dv_reg_dmabuf_mr.
type Mover struct {
	DMA pciaddr.Addr // set if Has is Yes
	Has Tri          // whether the NIC's card has exactly one DMA function
	// Usable says whether a registration can use the DMA function: mlx5_ib must be
	// bound to it.
	Usable Tri
	Why    string
}

// dataDirectDriver is the module that binds DMA functions, from 6.12 on.
const dataDirectDriver = "mlx5_ib"

// Mover finds the DMA function of a NIC, by keyword V3 in the VPD of both. (mlx5_ib
// itself compares keyword VU with a value that it asks the NIC's firmware for.) For a
// virtual function the caller passes the physical one.
func (p Plan) Mover(nic pciaddr.Addr) Mover {
	n := p.tree.at[nic]
	if n == nil {
		return Mover{Why: "this NIC is not among the functions that were read"}
	}
	none := func(format string, args ...any) Mover {
		return Mover{Has: No, Usable: No, Why: fmt.Sprintf(format, args...)}
	}
	dmas := p.tree.of(dmaKind)
	switch {
	case len(dmas) == 0:
		return none("the machine has no DMA function of ConnectX")
	case n.Vendor != mellanox || n.Device < connectX8 && n.Device != anyVirtual:
		return none("%04x:%04x has no DMA function: ConnectX-8 is the first that has", n.Vendor, n.Device)
	case !n.VPDRead:
		return Mover{Why: "the NIC's VPD, which names its card, could not be read"}
	case n.Card == "":
		return Mover{Why: "the NIC's VPD does not name its card (keyword V3)"}
	}
	var own []*node
	for _, d := range dmas {
		switch {
		case !d.VPDRead:
			return Mover{Why: fmt.Sprintf("the VPD of DMA function %v, which names its card, could not be read", d.Addr)}
		case d.Card == n.Card:
			own = append(own, d)
		}
	}
	switch len(own) {
	case 0:
		return none("no DMA function is of this card")
	case 1:
		return own[0].mover()
	}
	return Mover{Why: fmt.Sprintf("%d DMA functions are of this card: it is not known which of them mlx5_ib takes", len(own))}
}

// Movers returns the DMA functions of the machine's ConnectX cards.
func (p Plan) Movers() []pciaddr.Addr {
	if p.tree == nil {
		return nil
	}
	var out []pciaddr.Addr
	for _, d := range p.tree.of(dmaKind) {
		out = append(out, d.Addr)
	}
	return out
}

func (d *node) mover() Mover {
	m := Mover{DMA: d.Addr, Has: Yes, Usable: Yes, Why: "its VPD names the same card (keyword V3)"}
	switch {
	case d.Driver == dataDirectDriver: // whose probe fails without VU
	case d.Driver != "":
		m.Usable, m.Why = No, fmt.Sprintf("%s is bound to it, and not %s", d.Driver, dataDirectDriver)
	case d.VPDRead && d.VU == "":
		m.Usable, m.Why = No, dataDirectDriver+" cannot bind it: its VPD has no keyword VU"
	default:
		m.Usable, m.Why = No, dataDirectDriver+" is not bound to it"
	}
	return m
}
