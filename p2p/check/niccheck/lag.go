// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"strings"

	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/placement"
)

// lag reports RDMA devices that stand for several ports: the verdict on such a device's pairs holds
// for the one port whose PCI function the device is on.
func lag(l *check.Look) {
	perNIC(l, func(n drivers.NIC) {
		switch g := check.LAGOf(l, n); g.Is {
		case placement.Yes:
			others := "another port's function"
			if len(g.Others) > 0 {
				others = strings.Join(g.Others, ", ")
			}
			own := noFunction
			if n.Importer.PCI != nil {
				own = n.Importer.PCI.String()
			}
			l.Warn(n.Name, g.At, "a LAG: %s; its pairs are judged by %s, and traffic takes %s as well", g.Why, own, others)
		case placement.No:
			l.Pass(n.Name, g.At, "%s", g.Why)
		default:
			l.Unknown(n.Name, g.At, "%s", g.Why)
		}
	})
}
