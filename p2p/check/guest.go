// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Physical are the IDs of checks of ports and links. In a guest, a fault that
// they find is a fault, but a port that passes may be one that the hypervisor
// emulates.
var Physical = []string{
	"P2P-ACS-LIST", "ISO-ACS-SOURCE", "ISO-ACS-PORT", "ISO-ATS", "ISO-RO",
	"PCIE-LINK-IDLE", "PCIE-MPS", "PCIE-MRRS", "PCIE-AER",
}

// Guest makes a pass of a check in Physical unknown if the machine is a guest.
func Guest(l *Look, f *Finding) {
	if f.Result != p2p.ResultPass || l.Machine.Virtual.Is != placement.Yes || !slices.Contains(Physical, f.Check.ID) {
		return
	}
	f.Result = p2p.ResultUnknown
	f.Read += "; " + machine.InventedTree
	f.Fix("look at the host", "", "")
}
