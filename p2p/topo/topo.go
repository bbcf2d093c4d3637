// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/pciids"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// BAR is a memory region of a function.
type BAR struct {
	Index        int    `json:"index"`        // the number of the BAR
	Start        uint64 `json:"start"`        // the address
	Size         uint64 `json:"size"`         // the size in bytes
	Prefetchable bool   `json:"prefetchable"` // the BAR is prefetchable
	// Largest is the largest size in bytes that the function offers for the BAR; null if it offers
	// only one, or the sizes are not known.
	Largest *uint64 `json:"largest"`
}

// ACS is the access control of a function. If Known is false, Error says why.
type ACS struct {
	Known     bool   `json:"known"`           // the registers could be read
	Present   bool   `json:"present"`         // the function has ACS
	Control   uint16 `json:"control"`         // the control register
	Redirects string `json:"redirects"`       // the set bits that redirect traffic to the root, or "none"; "" if not known
	Error     string `json:"error,omitempty"` // why it is not known
}

// Link is the link above a function: its speed and width, and the highest that its lower end and
// the port above support, as sysfs writes them ("16.0 GT/s PCIe", "16"). A field is "" if it is not known.
type Link struct {
	Speed        string `json:"speed"`          // the speed now, as sysfs writes it; "" without a link
	Width        string `json:"width"`          // the number of lanes now; "" without a link
	MaxSpeed     string `json:"max_speed"`      // the highest speed that the function supports; "" without a link
	MaxWidth     string `json:"max_width"`      // the greatest number of lanes that the function supports; "" without a link
	PortMaxSpeed string `json:"port_max_speed"` // the highest speed that the port above supports; "" without one
	PortMaxWidth string `json:"port_max_width"` // the greatest number of lanes that the port above supports; "" without one
}

// Way has the rates of the links between a GPU and a NIC: that of the slowest link, and the lower
// rate of the two links at the ends.
type Way struct {
	// BytesPerS is the rate of the slowest link now, in each direction, after its encoding and before
	// what packets take. The link of a GPU counts with the speed that it could have, because it slows
	// down while the GPU is idle.
	BytesPerS uint64       `json:"bytes_per_s"`
	Slowest   pciaddr.Addr `json:"slowest"` // the PCI address of the function whose link to the port above is the slowest
	// EndsBytesPerS is the rate that the links of the GPU and of the NIC could both have, by what both
	// ends of each link support.
	EndsBytesPerS uint64 `json:"ends_bytes_per_s"`
}

// PairWay is a pair, and the links between the two devices.
type PairWay struct {
	result.Pair
	// Way has the rates of the links between the two. It is null off PCI, in a guest, where the kind
	// of a port on the way is not known (without root), and where there is no link. A root complex and
	// the link between sockets may carry less.
	Way *Way `json:"way"`
}

// Function is a GPU, a NIC, an NVMe controller, a DMA function of a NIC, the NIC of a guest, a
// physical function of one of these, or a bridge above one.
type Function struct {
	PCI   pciaddr.Addr   `json:"pci"`   // the PCI address of the function
	Bus   string         `json:"bus"`   // the host bridge's bus: "pci0000:00"
	Above []pciaddr.Addr `json:"above"` // the PCI addresses of the bridges above, the nearest first
	// Role is "GPU", "NIC", "NVMe", "bridge", "DMA" (a function beside a GPU that moves the data of a
	// ConnectX NIC), "guest NIC" (given to a guest, on a machine whose GPUs are, too), or "other" (a
	// physical function that is none of these itself).
	Role  string   `json:"role"`
	Names []string `json:"names"` // the names of its devices
	Name  string   `json:"-"`     // the name of the product: see Topology.Name
	// Port is "root port", "upstream port", "downstream port" or "endpoint"; "" if it is none of
	// these, or not known.
	Port   string        `json:"port"`
	Vendor string        `json:"vendor"`    // the vendor's ID in hexadecimal
	Device string        `json:"device"`    // the device's ID in hexadecimal
	Driver string        `json:"driver"`    // the driver that is bound; "" without one
	NUMA   *int          `json:"numa_node"` // the NUMA node; null if the firmware names none
	PF     *pciaddr.Addr `json:"pf"`        // the PCI address of the physical function of a virtual one; null of others
	// IOMMU is the kernel's word for the IOMMU domain ("DMA", "DMA-FQ", "identity"), "none", or
	// "unknown".
	IOMMU string  `json:"iommu"`
	Group *string `json:"iommu_group"` // the number of the IOMMU group; null without one, or if it is not known
	ACS   ACS     `json:"acs"`         // the function's Access Control Services
	Link  Link    `json:"link"`        // the link from the function to the port above it
	BARs  []BAR   `json:"bars"`        // the memory regions that have an address
	// CMB is the size in bytes of an NVMe controller's memory buffer, 0 if it has none; null of
	// others, and where the kernel's driver does not have the controller.
	CMB *uint64 `json:"cmb"`
	// Peer is how many bytes of an NVMe controller's memory its driver lets others reach; null if
	// there are none.
	Peer *uint64 `json:"peer_memory"`
}

// Topology is the PCI tree above the GPUs and NICs of a machine, and the pairs.
type Topology struct {
	Machine result.Host `json:"machine"` // the facts that decide for all pairs
	// Functions are the GPUs, NICs, NVMe controllers (without --gpu and --nic), physical functions of
	// these, and the bridges above them. A bridge is before the functions below it, and a physical
	// function before its virtual ones.
	Functions []Function `json:"functions"`
	OffPCI    []string   `json:"off_pci"` // the names of GPUs and NICs on no PCI bus
	Pairs     []PairWay  `json:"pairs"`   // each GPU with each NIC
	missing   []string   // devices that a pair needs
	Partial   bool       `json:"-"` // not all devices could be read
}

// Read reads the GPUs, the NICs and the bridges above them. With all it also reads the NVMe
// controllers, the DMA functions of NICs, and the NICs of guests. It returns an error for each
// function that it could not read.
func Read(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC, all bool) (Topology, []error) {
	r := reader{
		m: m, seen: map[pciaddr.Addr]*Function{}, known: map[pciaddr.Addr]machine.Function{},
		out: Topology{Machine: result.HostOf(m), Functions: []Function{}, OffPCI: []string{}, Pairs: []PairWay{}, missing: result.Missing(m, gpus, nics)},
	}
	for _, n := range nics {
		r.place(n.Importer.PCI, "NIC", n.Name)
	}
	for _, g := range gpus {
		r.place(g.Exporter.PCI, "GPU", g.Name)
		for _, n := range nics {
			p := p2p.Judge(m, g, n)
			r.out.Pairs = append(r.out.Pairs, PairWay{result.PairOf(p), wayOf(p2p.WayOf(m, p, r.function))})
		}
	}
	if all {
		r.disks()
		r.movers(nics)
		r.guests(gpus)
	}
	for _, f := range r.seen {
		r.out.Functions = append(r.out.Functions, *f)
	}
	slices.SortFunc(r.out.Functions, inTree)
	terminal.Clean(&r.out)
	return r.out, r.errs
}

// Name sets the names of the functions' products, from the first of the pci.ids files at paths that
// exists. If none exists, there are no names, and no error.
func (r *Topology) Name(paths []string) error {
	var want []pciids.ID
	for _, f := range r.Functions {
		if id, ok := pciids.Parse(f.Vendor, f.Device); ok {
			want = append(want, id)
		}
	}
	names, err := pciids.Load(paths, want)
	for i, f := range r.Functions {
		if id, ok := pciids.Parse(f.Vendor, f.Device); ok {
			r.Functions[i].Name = names[id]
		}
	}
	return err
}

func wayOf(w p2p.Way, known bool) *Way {
	if !known {
		return nil
	}
	return &Way{w.Rate, w.Slowest, w.Ends}
}

func functionOf(m *machine.Machine, p machine.Function) Function {
	f := Function{
		PCI: p.PCI, Bus: p.Bus, Above: result.List(p.Upstream), Role: "other", Names: []string{}, Port: p.Port, PF: p.PF,
		Vendor: fmt.Sprintf("%04x", p.Vendor), Device: fmt.Sprintf("%04x", p.Device), Driver: p.Driver, IOMMU: p.IOMMU,
		ACS:  ACS{Known: p.ACSErr == nil, Present: p.ACS.Present, Control: uint16(p.ACS.Ctrl), Redirects: p.ACS.Redirects().String()},
		Link: Link{Speed: p.Speed, Width: p.Width, MaxSpeed: p.MaxSpeed, MaxWidth: p.MaxWidth}, BARs: []BAR{},
	}
	if p.Bridge {
		f.Role = "bridge"
	}
	if p.NUMANode >= 0 {
		f.NUMA = &p.NUMANode
	}
	if p.ACSErr != nil {
		f.ACS.Error, f.ACS.Redirects = p.ACSErr.Error(), ""
	}
	if p.IOMMUErr != nil {
		f.IOMMU = "unknown"
	} else if p.IOMMU == "" {
		f.IOMMU = "none"
	}
	if p.GroupErr == nil && p.Group != "" {
		f.Group = &p.Group
	}
	for _, b := range p.BARs {
		shown := BAR{Index: b.Index, Start: b.Start, Size: b.Size, Prefetchable: b.Prefetchable}
		if size, ok := m.Resizable(p.PCI, b.Index); ok {
			shown.Largest = &size
		}
		f.BARs = append(f.BARs, shown)
	}
	return f
}

// Status returns the exit status of a run that shows the tree. It is 3 (unknown) if the machine has
// neither a GPU nor a NIC, and otherwise 0.
func (r Topology) Status() int {
	if len(r.missing) == 2 {
		return result.StatusUnknown
	}
	return result.StatusGood
}
