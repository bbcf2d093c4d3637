// SPDX-License-Identifier: Apache-2.0

package fabrictest

import (
	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memstream"
)

// Loss says how cut connections over TCP end.
type Loss int

// The losses.
const (
	Reset  Loss = iota // both ends learn of it at once; a Dial fails with EHOSTUNREACH
	Silent             // nothing arrives; both ends learn of it after Config.PeerTimeout, and a Dial waits
)

// CutExchanges cuts the connections over TCP by which machines connect and export memory, and
// prevents new ones. Without among it cuts those of all machines, with one Fabric those of this
// machine, and with several Fabrics those between these machines. RDMA continues until a side
// detects the cut.
func (n *Network) CutExchanges(how Loss, among ...*gpurdma.Fabric) {
	loss := memstream.Reset
	if how == Silent {
		loss = memstream.Silent
	}
	var devices []*memnic.Device
	for _, f := range among {
		devices = append(devices, n.machine(f).nics[0].dev) // any of a machine's
	}
	n.net.CutExchanges(loss, devices...)
}

// MendExchanges undoes all calls of CutExchanges. Silent connections continue, unless they have
// failed meanwhile.
func (n *Network) MendExchanges() { n.net.MendExchanges() }
