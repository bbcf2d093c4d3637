// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/directnic"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Roles of functions that are neither GPU nor RDMA device.
const (
	mover    = "DMA" // moves the data of a NIC, beside a GPU
	guestNIC = "guest NIC"
)

// reader reads functions, each once.
type reader struct {
	m     *machine.Machine
	seen  map[pciaddr.Addr]*Function
	known map[pciaddr.Addr]machine.Function
	out   Topology
	errs  []error
}

// read reads a function and those above it. It returns nil if the function could not be read.
func (r *reader) read(a pciaddr.Addr) *Function {
	if f := r.seen[a]; f != nil {
		return f
	}
	p, err := r.m.Function(a)
	if err != nil {
		r.errs = append(r.errs, err)
		return nil
	}
	f := functionOf(r.m, p)
	r.seen[a], r.known[a] = &f, p
	for i, up := range p.Upstream {
		if above := r.read(up); i == 0 && above != nil && (!p.Bridge || p.Port == "upstream port") { // the link of other ports leads down
			f.Link.PortMaxSpeed, f.Link.PortMaxWidth = above.Link.MaxSpeed, above.Link.MaxWidth
		}
	}
	if p.PF != nil {
		r.read(*p.PF)
	}
	return &f
}

// function is what read has read before.
func (r *reader) function(a pciaddr.Addr) (machine.Function, error) {
	if p, ok := r.known[a]; ok {
		return p, nil
	}
	return r.m.Function(a)
}

// place puts a device into the tree, or among those on no PCI bus.
func (r *reader) place(a *pciaddr.Addr, role, name string) {
	if a == nil {
		r.out.OffPCI = append(r.out.OffPCI, name)
	} else if f := r.read(*a); f != nil {
		f.Role = role
		f.Names = append(f.Names, name)
	}
}

func (r *reader) disks() {
	found, err := drivers.NVMes(r.m)
	if err != nil {
		r.errs = append(r.errs, err)
	}
	for _, d := range found {
		r.place(&d.PCI, "NVMe", d.Name)
		f := r.seen[d.PCI]
		if f != nil && d.CMBKnown {
			f.CMB = &d.CMB
		}
		if f != nil && d.Peer > 0 {
			f.Peer = &d.Peer
		}
	}
}

// guests places the NICs of guests, where GPUs are given to guests, too. Elsewhere they are of no
// pair, and there may be thousands.
func (r *reader) guests(gpus []drivers.GPU) {
	if !slices.ContainsFunc(gpus, func(g drivers.GPU) bool { return directnic.GivenAway(g.Exporter.Driver) }) {
		return
	}
	for _, a := range p2p.GuestNICs(r.m) {
		r.place(&a, guestNIC, a.String())
	}
}

// movers places the DMA functions of ConnectX cards, each with the NICs that are known to be of
// its card.
func (r *reader) movers(nics []drivers.NIC) {
	plan := p2p.ACSPlan(r.m)
	for _, a := range plan.Movers() {
		if f := r.read(a); f != nil {
			f.Role = mover
		}
	}
	for _, n := range nics {
		if n.Importer.PCI == nil {
			continue
		}
		if move := plan.Mover(*n.Importer.PCI); move.Has == directnic.Yes {
			r.place(&move.DMA, mover, n.Name)
		}
	}
}
