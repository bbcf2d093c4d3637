// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"path"

	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Function has the facts that decide whether traffic passes a PCI function, and how fast
// it passes.
type Function struct {
	PCI      pciaddr.Addr
	Bus      string         // the host bridge's: "pci0000:00"
	Upstream []pciaddr.Addr // the bridges above, nearest first
	Vendor   uint16
	Device   uint16
	Class    uint32 // 24 bits
	NUMANode int    // -1: the firmware says none
	Driver   string // "" without one
	Bridge   bool
	Port     string // "root port", "upstream port", "downstream port", "endpoint"; "" for another kind, or if it is not known

	// PF is the physical function of a virtual one. It is nil for other functions, and
	// where it is not known.
	PF *pciaddr.Addr

	BARs []pci.BAR // those that have an address

	ACS    pci.ACS
	ACSErr error // why its ACS is not known

	IOMMU    string // as the kernel calls its domain; "" without an IOMMU
	IOMMUErr error
	Group    string // the IOMMU's, by number; "" without one
	GroupErr error

	// Speed and Width are those of the link above the function, as sysfs writes them:
	// "16.0 GT/s PCIe" and "16". MaxSpeed and MaxWidth are the most that this end
	// supports. All are "" without a link.
	Speed, Width       string
	MaxSpeed, MaxWidth string
}

// PortUpstream is the Function.Port of a switch's port towards the root complex.
const PortUpstream = "upstream port"

var portNames = map[pci.Port]string{
	pci.PortEndpoint: "endpoint", pci.PortRoot: "root port", pci.PortUpstream: PortUpstream, pci.PortDownstream: "downstream port",
}

// Function reads a PCI function. It fails only if the function is not there.
func (m *Machine) Function(a pciaddr.Addr) (Function, error) {
	p, err := pci.ReadFunction(m.Sys, a)
	if err != nil {
		return Function{}, err
	}
	chain, err := pci.Chain(m.Sys, a)
	if err != nil {
		return Function{}, err
	}
	n := m.Node(a)
	if n.Err != nil {
		return Function{}, n.Err
	}
	f := Function{
		PCI: a, Bus: chain[0], Upstream: n.Up, Vendor: p.Vendor, Device: p.Device, Class: p.Class,
		NUMANode: p.NUMANode, Driver: p.Driver, Bridge: p.IsBridge(), ACS: n.ACS, ACSErr: n.ACSErr,
	}
	f.BARs, _ = pci.BARs(m.Sys, a) // none if the file cannot be read
	f.IOMMU, f.IOMMUErr = pci.IOMMUType(m.Sys, a)
	f.Group, f.GroupErr = pci.IOMMUGroup(m.Sys, a)
	if pf, ok, err := pci.PhysicalFunction(m.Sys, a); ok && err == nil {
		f.PF = &pf
	}
	if c, err := pci.ReadConfig(m.Sys, a); err == nil {
		if port, err := c.Port(); err == nil {
			f.Port = portNames[port]
		}
	}
	attr := func(name string) string {
		text, err := m.Sys.ReadString(path.Join(p.SysPath, name))
		if err != nil || text == "Unknown" || text == "0" {
			return ""
		}
		return text
	}
	f.Speed, f.Width = attr("current_link_speed"), attr("current_link_width")
	f.MaxSpeed, f.MaxWidth = attr("max_link_speed"), attr("max_link_width")
	return f, nil
}

// Place is where a function is.
type Place struct {
	Bus      string // the host bridge's: "pci0000:00"
	NUMANode int    // -1: the firmware says none
	Group    string // the IOMMU's, by number; "" without one
	GroupErr error
}

// Place finds a function. It reads less than Function.
func (m *Machine) Place(a pciaddr.Addr) (Place, error) {
	p, err := pci.ReadFunction(m.Sys, a)
	if err != nil {
		return Place{}, err
	}
	chain, err := pci.Chain(m.Sys, a)
	if err != nil {
		return Place{}, err
	}
	at := Place{Bus: chain[0], NUMANode: p.NUMANode}
	at.Group, at.GroupErr = pci.IOMMUGroup(m.Sys, a)
	return at, nil
}

// Resizable is the largest size that a function offers for one of its BARs. It is false
// if sysfs has no list of sizes for the BAR.
func (m *Machine) Resizable(a pciaddr.Addr, bar int) (uint64, bool) {
	text, err := m.Sys.ReadString(path.Join("bus/pci/devices", a.String(), pci.ResizeFile(bar)))
	if err != nil {
		return 0, false
	}
	return pci.LargestSize(text)
}
