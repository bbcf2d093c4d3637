// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// DataDirect says whether the card of a NIC has a second function for direct data that the NIC's driver
// can use.
func DataDirect(l *check.Look, n drivers.NIC) placement.Answer {
	own := physical(l, n)
	if n.Importer.Driver != "mlx5_core" || own == nil {
		return placement.No
	}
	f := l.Function(*own)
	if f.Err == nil && f.Vendor == machine.VendorMellanox && f.Device < machine.ConnectX8 && f.Device != anyVirtual {
		return placement.No
	}
	all, err := directFunctions(l)
	switch {
	case err != nil || f.Err != nil:
		return placement.AnswerUnknown
	case len(all) == 0:
		return placement.No
	}
	of, known := ofCard(l, n, all)
	switch {
	case !known:
		return placement.AnswerUnknown
	case len(of) > 0:
		return placement.Yes
	}
	return placement.No
}
