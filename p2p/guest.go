// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"

	"github.com/gpurdma/gpurdma/placement"
)

// inventedTree is why a guest's registers say little: those that it reads are of
// ports that the hypervisor made up.
const inventedTree = "a virtual machine: its tree need not be the hardware's"

// guestSwitch is the remedy where the hypervisor has left the switches out.
const guestSwitch = "give the guest a switch for those that share one on the host"

// unswitched reports a function of a guest that the hypervisor has put on the root
// itself, or on a root port.
func (m *Machine) unswitched(a Addr) bool {
	if m.virtual.is != placement.Yes {
		return false
	}
	f, err := m.Function(a)
	return err == nil && len(f.Upstream) < 2
}

// physical are checks of ports and links. What they find wrong in a guest is
// wrong, and what they find right may be so for the hypervisor's ports only.
var physical = []string{
	"P2P-ACS-LIST", "ISO-ACS-SOURCE", "ISO-ACS-PORT", "ISO-ATS", "ISO-RO",
	"PCIE-LINK-IDLE", "PCIE-MPS", "PCIE-MRRS", "PCIE-AER",
}

// guest makes what passes in a guest unknown, where the hardware decides.
func (l *look) guest(f *Finding) {
	if f.Result != ResultPass || l.m.virtual.is != placement.Yes || !slices.Contains(physical, f.Check.ID) {
		return
	}
	f.Result = ResultUnknown
	f.Read += "; " + inventedTree
	f.fix("look at the host", "", "")
}

// real reports a pair of PCI functions that hardware moves data between.
func (p Pair) real() bool {
	return p.GPU.Exporter.PCI != nil && p.NIC.Importer.PCI != nil && !p.NIC.Software
}
