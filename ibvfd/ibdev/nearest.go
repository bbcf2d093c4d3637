// SPDX-License-Identifier: Apache-2.0

package ibdev

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Near is an RDMA device and how near it lies to some memory.
type Near struct {
	Name string // of the device
	Why  string // the reason for the choice, in words

	rank [5]int
}

// Nearest picks, from devices, the one nearest to the PCI function mem: the
// owner of the memory, or nil for memory that lies on no PCI device, to which
// every device is equally near.
//
// A device with an active port comes before one without. Then the shortest way
// through the PCI tree decides; where that leads over different host bridges,
// the same NUMA node comes first. Devices that are still equal go by their
// order in the list. sys is the root of sysfs, "" for /sys. No devices is ErrNoDevice.
//
// This is the shape of the machine, not a promise that the kernel allows
// peer-to-peer on that way.
func Nearest(sys string, mem *pciaddr.Addr, devices []Info) (Near, error) {
	s := sysfs.New(sys)
	if len(devices) == 0 {
		return Near{}, noDevice(s, "any RDMA device")
	}
	list := make([]Near, len(devices))
	for i, d := range devices {
		list[i] = rank(s, mem, d)
		list[i].rank[4] = i
	}
	best := slices.MinFunc(list, func(a, b Near) int { return slices.CompareFunc(a.rank[:], b.rank[:], cmp.Compare[int]) })
	if len(devices) == 1 {
		best.Why = "the only one; " + best.Why
	} else {
		best.Why = fmt.Sprintf("nearest of %d: %s", len(devices), best.Why)
	}
	return best, nil
}

// rank is smaller for what is nearer.
func rank(s sysfs.FS, mem *pciaddr.Addr, d Info) Near {
	n := Near{Name: d.Name}
	port := ""
	if !slices.ContainsFunc(d.Ports, func(p Port) bool { return p.State == PortActive }) {
		n.rank[0] = 1
		port = ", no port is active"
	}
	place, ok := placeOf(s, d)
	switch {
	case mem == nil:
		n.Why = "the memory is on no PCI device, so that every NIC is equally near" + port
	case !ok:
		n.rank[1] = 2
		n.Why = "it is on no PCI device, so that its distance is unknown" + port
	default:
		hops, common, known := pci.Distance(s, *mem, place)
		switch {
		case !known:
			n.rank[1] = 2
		case common == "":
			n.rank[1] = 1
			n.rank[2] = otherNode(s, *mem, place)
		}
		n.rank[3] = hops
		n.Why = fmt.Sprintf("%v and the memory's %v: %s%s", place, *mem, pci.Relation(s, place, *mem), port)
	}
	return n
}

// placeOf is the PCI function that does the device's transfers: its own, or
// that of the network device below a software one.
func placeOf(s sysfs.FS, d Info) (pciaddr.Addr, bool) {
	if d.PCI != nil {
		return *d.PCI, true
	}
	for _, dev := range d.NetDevs {
		if addr, ok := pci.DeviceOf(s, path.Join("class/net", dev)); ok {
			return addr, true
		}
	}
	return pciaddr.Addr{}, false
}

// otherNode is 0 on the same NUMA node, else 1.
func otherNode(s sysfs.FS, a, b pciaddr.Addr) int {
	fa, err1 := pci.ReadFunction(s, a)
	fb, err2 := pci.ReadFunction(s, b)
	if err1 == nil && err2 == nil && fa.NUMANode >= 0 && fa.NUMANode == fb.NUMANode {
		return 0
	}
	return 1
}
