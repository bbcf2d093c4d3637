// SPDX-License-Identifier: Apache-2.0

package result

import (
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Place is where a PCI device is. A field is nil if it is not known, or if the machine has no
// such thing.
type Place struct {
	Root  *string `json:"pcie_root"` // the host bridge's bus: "pci0000:00"
	NUMA  *int    `json:"numa_node"`
	Group *string `json:"iommu_group"`
}

// GPU is a GPU of the machine.
type GPU struct {
	Name      string        `json:"name"`
	PCI       *pciaddr.Addr `json:"pci"`         // nil for a GPU on no PCI bus
	Driver    string        `json:"driver"`      // "" without one, drivers.UnknownDriver if it is not known
	Exporter  string        `json:"exporter"`    // the name of a drivers.Class
	OutOfTree bool          `json:"out_of_tree"` // the driver is not, or may not be, the kernel's own
	Counts    bool          `json:"counts"`      // the GPU has memory of its own
	Place
}

// NIC is an RDMA device of the machine.
type NIC struct {
	Name       string        `json:"name"`
	PCI        *pciaddr.Addr `json:"pci"` // nil for an RDMA device on no PCI bus
	Driver     string        `json:"driver"`
	Importer   string        `json:"importer"`     // the name of a drivers.Kind
	PeerToPeer bool          `json:"peer_to_peer"` // see drivers.Importer
	ByCPU      bool          `json:"by_cpu"`       // see drivers.Importer
	Software   bool          `json:"software"`     // rxe or siw
	NetDevs    []string      `json:"netdevs"`
	Place
}

func gpuOf(m *machine.Machine, g drivers.GPU) GPU {
	e := g.Exporter
	return GPU{g.Name, e.PCI, e.Driver, e.Class.String(), e.OutOfTree, e.Class != drivers.ClassSystem, placeOf(m, e.PCI)}
}

func nicOf(m *machine.Machine, n drivers.NIC) NIC {
	i := n.Importer
	return NIC{n.Name, i.PCI, i.Driver, i.Kind.String(), i.PeerToPeer, i.ByCPU, n.Software, List(n.NetDevs), placeOf(m, i.PCI)}
}

// placeOf finds the place of a device. If the device cannot be read, the place is not known, and
// a check reports it.
func placeOf(m *machine.Machine, a *pciaddr.Addr) Place {
	if a == nil {
		return Place{}
	}
	at, err := m.Place(*a)
	if err != nil {
		return Place{}
	}
	out := Place{Root: &at.Bus}
	if at.NUMANode >= 0 {
		out.NUMA = &at.NUMANode
	}
	if at.Group != "" && at.GroupErr == nil {
		out.Group = &at.Group
	}
	return out
}

// Counting returns how many of the GPUs have memory of their own for a NIC to reach.
func Counting(gpus []GPU) int {
	n := 0
	for _, g := range gpus {
		if g.Counts {
			n++
		}
	}
	return n
}
