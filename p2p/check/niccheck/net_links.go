// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

func netLink(l *check.Look) {
	told := map[string]bool{} // ports can share a network device, and NICs that of a bond
	perPort(l, ibdev.LinkEthernet, func(_ string, n drivers.NIC, p ibdev.Port) {
		for _, dev := range netDevs(n, p) {
			if told[dev] {
				continue
			}
			told[dev] = true
			state, mtu := l.Read("sys/class/net", dev, "operstate"), l.Read("sys/class/net", dev, "mtu")
			size, ok := mtu.Number()
			at := append(state.At(), mtu.Where)
			// The state "unknown" counts as up if the RDMA port is active.
			up, read := state.Text == "up", state.Text
			if state.Text == "unknown" && p.State == ibdev.PortActive {
				up, read = true, "its driver reports no state, the port is ACTIVE"
			}
			switch {
			case state.Err != nil:
				l.Unread(dev, state)
			case state.Text == "down" || state.Text == "lowerlayerdown":
				linkDown(l, dev, n, p, state)
			case !up:
				l.Unknown(dev, at, "it is %q", state.Text)
			case !ok:
				l.Unknown(dev, at, "%s", check.OrText(mtu))
			case packets(size) < largestPacket && !check.IsIWARP(check.Kind(l, n)):
				l.Warn(dev, at, "%s, MTU %d%s", read, size, inPackets(size)).Fix("set an MTU of 9000, on the switch as well", "ip link set "+dev+" mtu 9000", "")
			default:
				l.Pass(dev, at, "%s, MTU %d", read, size)
			}
		}
	})
}

// linkDown reports a link that is down: a failure if no link is up, or if the port is in use. Other
// links may belong to spare cards without a cable, whose ports NIC-STATE reports.
func linkDown(l *check.Look, dev string, n drivers.NIC, p ibdev.Port, state machine.Reading) {
	result, read := p2p.ResultWarn, state.Text
	if n.Software {
		read += "; the NIC is no hardware"
	} else if pf := physical(l, n); pf != n.Importer.PCI {
		read += fmt.Sprintf("; it is of a virtual function, of %v", *pf)
	} else if other := otherLink(l, dev, n); other != "" {
		read += fmt.Sprintf("; %s of the same card is up", other)
	} else if hasVirtual(l, n) {
		read += "; the NIC has virtual functions, which have network devices of their own"
	} else if p.State == ibdev.PortActive {
		result, read = p2p.ResultFail, read+"; the port is ACTIVE"
	} else {
		other, open := anyUp(l)
		port := l.Read(check.PortDir(n, p, "state"))
		known := port.Err == nil && p.State >= ibdev.PortDown && p.State <= ibdev.PortArmed
		switch {
		case other == "" && !open:
			result, read = p2p.ResultFail, read+"; no NIC is up"
		case other == "":
			result, read = p2p.ResultUnknown, read+"; whether another NIC is up is not known"
		case !known:
			result, read = p2p.ResultUnknown, read+"; the port's state is not known"
		default:
			read += fmt.Sprintf("; the port is not in use: %s", port.Text)
		}
	}
	l.Say(result, dev, state.At(), "%s", read).Fix("set it up, with an MTU of 9000; look at cable and switch", "ip link set "+dev+" up mtu 9000", "")
}

// otherLink returns another network device of a NIC's card that is up; "" if there is none.
func otherLink(l *check.Look, dev string, n drivers.NIC) string {
	for _, o := range l.Subject.NICs {
		if o.Name != n.Name && !sameCard(l, o, n) {
			continue
		}
		for _, other := range o.NetDevs {
			if other != dev && l.Read("sys/class/net", other, "operstate").Text == "up" {
				return other
			}
		}
	}
	return ""
}

// anyUp returns the name of a NIC's network device, or of an InfiniBand port, that is up; "" if none is known to be
// up. open says that the state of some could not be read.
func anyUp(l *check.Look) (name string, open bool) {
	for _, n := range l.Subject.NICs {
		if n.Software {
			continue
		}
		open = open || len(n.Ports) == 0
		for _, p := range n.Ports {
			active := p.State == ibdev.PortActive
			if p.LinkLayer != ibdev.LinkEthernet {
				if active {
					return drivers.PortName(n, p), false
				}
				open = open || l.Read(check.PortDir(n, p, "state")).Err != nil
				continue
			}
			for _, dev := range netDevs(n, p) {
				switch state := l.Read("sys/class/net", dev, "operstate").Text; state {
				case "up":
					return dev, false
				case "down", "lowerlayerdown", "notpresent":
				case "unknown":
					if active {
						return dev, false
					}
				default:
					open = true
				}
			}
		}
	}
	return "", open
}

// physical returns the PCI function of a NIC: for a virtual function the physical one. It returns
// nil if the NIC is on no PCI bus.
func physical(l *check.Look, n drivers.NIC) *pciaddr.Addr {
	if n.Importer.PCI != nil {
		if pf := l.Function(*n.Importer.PCI).PF; pf != nil {
			return pf
		}
	}
	return n.Importer.PCI
}

// sameCard reports whether two NICs are on one card. A virtual function counts as its physical one.
func sameCard(l *check.Look, a, b drivers.NIC) bool {
	x, y := physical(l, a), physical(l, b)
	if x == nil || y == nil {
		return false
	}
	c, d := *x, *y
	c.Function, d.Function = 0, 0
	return c == d
}

// netDevs returns the network devices of a port: those that its GIDs name. If no GID names one, it returns all of
// the NIC's network devices.
func netDevs(n drivers.NIC, p ibdev.Port) []string {
	var out []string
	for _, g := range p.GIDs {
		if g.NetDev != "" && !slices.Contains(out, g.NetDev) {
			out = append(out, g.NetDev)
		}
	}
	if len(out) == 0 {
		return n.NetDevs
	}
	return out
}
