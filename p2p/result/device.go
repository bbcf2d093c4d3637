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
	Root *string `json:"pcie_root"` // the host bridge's bus: "pci0000:00"; null off PCI, or if it is not known
	// NUMA is the NUMA node; null off PCI, if the firmware names none, or if it is not known.
	NUMA *int `json:"numa_node"`
	// Group is the number of the IOMMU group; null off PCI, without one, or if it is not known.
	Group *string `json:"iommu_group"`
}

// GPU is a GPU of the machine.
type GPU struct {
	Name string        `json:"name"` // the name of the GPU, which pairs use
	PCI  *pciaddr.Addr `json:"pci"`  // the PCI address, such as 0000:03:00.0; null on no PCI bus
	// Driver is the kernel's driver; "" without one, "?" if the file that was read does not say.
	Driver    string `json:"driver"`
	Exporter  string `json:"exporter"`    // by whose rules the GPU's memory is exported
	OutOfTree bool   `json:"out_of_tree"` // the driver is not the kernel's own, or may not be
	Counts    bool   `json:"counts"`      // the GPU has memory of its own for a NIC to reach
	Place
}

// NIC is an RDMA device of the machine.
type NIC struct {
	Name string        `json:"name"` // the name of the RDMA device: "mlx5_0"
	PCI  *pciaddr.Addr `json:"pci"`  // the PCI address, such as 0000:03:00.0; null on no PCI bus
	// Driver is the kernel's driver; "" without one, "?" if the file that was read does not say.
	Driver   string `json:"driver"`
	Importer string `json:"importer"` // how the NIC's driver attaches to dma-bufs
	// PeerToPeer says that the driver can use addresses that have no page. Of a driver that is not the
	// kernel's own that is not known.
	PeerToPeer bool `json:"peer_to_peer"`
	// ByCPU says that no hardware moves the NIC's data: the exporter must let the kernel map the
	// buffer for the CPU.
	ByCPU    bool     `json:"by_cpu"`
	Software bool     `json:"software"` // a NIC in software, rxe or siw
	NetDevs  []string `json:"netdevs"`  // the network devices of its ports
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
