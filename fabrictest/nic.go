// SPDX-License-Identifier: Apache-2.0

package fabrictest

import (
	"fmt"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/internal/memnic"
)

// NIC is a NIC of a machine, for tests that make it fail. Its methods may be called from
// several goroutines at once.
type NIC struct {
	machine *machine
	name    string
	dev     *memnic.Device
}

// NIC returns a NIC of a machine by its name; "" stands for the first. It panics if there is
// none.
func (n *Network) NIC(f *gpurdma.Fabric, name string) *NIC {
	m := n.machine(f)
	for _, nic := range m.nics {
		if name == "" || nic.name == name {
			return nic
		}
	}
	panic(fmt.Sprintf("fabrictest: %v has no NIC %s", f, name))
}

// Name returns the name: "mem0".
func (c *NIC) Name() string { return c.name }

// Fabric returns the Fabric of the NIC's machine; nil for the NIC of OpenDomain.
func (c *NIC) Fabric() *gpurdma.Fabric { return c.machine.fabric }

// String returns the name, and the address that connections show: "mem0 (10.0.0.1)".
func (c *NIC) String() string { return fmt.Sprintf("%s (%v)", c.name, c.dev.GID()) }

// Cut cuts the path between this NIC and another one, in both directions: no byte of a later
// operation reaches memory. Operations fail when the NIC has waited for about Config.PeerTimeout,
// unless Mend is called before. The exchange over TCP continues: see CutExchanges.
func (c *NIC) Cut(peer *NIC) { c.machine.net.net.Cut(c.dev, peer.dev) }

// Mend undoes Cut of the two NICs.
func (c *NIC) Mend(peer *NIC) { c.machine.net.net.Mend(c.dev, peer.dev) }

// LoseAnswers loses the answers of this NIC to another one's operations; with lost false it stops
// that. The operations are carried out, once. Their sender cannot tell them from operations that
// did not arrive.
func (c *NIC) LoseAnswers(to *NIC, lost bool) { c.machine.net.net.LoseAnswers(c.dev, to.dev, lost) }

// Hold keeps, in the network, the operations that this NIC sends to another one. With held false
// it lets them go on, and they arrive late. Until then their sender gets no answer, and gives up
// after Config.PeerTimeout. A late operation is carried out even if its sender's connection has
// ended; only the end of the connection at the peer stops it. Reads are lost.
func (c *NIC) Hold(to *NIC, held bool) { c.machine.net.net.Hold(c.dev, to.dev, held) }

// SetPort takes the port of the NIC down, or up again. A port that is down carries no bytes, and gets no
// new links: Dial fails with ENETDOWN, as over a real NIC.
func (c *NIC) SetPort(up bool) { c.dev.SetPort(up) }

// SetRate bounds the bytes a second that each connection of the NIC sends and receives, for
// programs that measure; 0 is the speed of copies.
func (c *NIC) SetRate(send, receive float64) { c.dev.SetRate(send, receive) }

// Remove takes the NIC out of its machine: its connections end at once, and it makes no new ones.
func (c *NIC) Remove() { c.dev.Remove() }

// Cut cuts all paths between the NICs of two machines.
func (n *Network) Cut(a, b *gpurdma.Fabric) { n.eachPath(a, b, (*NIC).Cut) }

// Mend undoes Cut, and the Cut of their NICs.
func (n *Network) Mend(a, b *gpurdma.Fabric) { n.eachPath(a, b, (*NIC).Mend) }

func (n *Network) eachPath(a, b *gpurdma.Fabric, do func(a, b *NIC)) {
	for _, x := range n.machine(a).nics {
		for _, y := range n.machine(b).nics {
			do(x, y)
		}
	}
}

// Lose takes a machine off the network, as if its power had failed: its NICs reach no NIC of the
// other machines, and it answers nothing over TCP. To undo it, call Mend with each other machine,
// and MendExchanges, which mends all machines.
func (n *Network) Lose(f *gpurdma.Fabric) {
	n.mu.Lock()
	var others []*gpurdma.Fabric
	for _, m := range n.machines {
		if m.fabric != f {
			others = append(others, m.fabric)
		}
	}
	n.mu.Unlock()
	n.CutExchanges(Silent, f)
	for _, other := range others {
		n.Cut(f, other)
	}
}
