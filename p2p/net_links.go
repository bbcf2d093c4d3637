// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/ibvfd"
)

func (l *look) netLink() {
	told := map[string]bool{} // ports can share one, and NICs a bond's
	l.perPort(ibvfd.LinkEthernet, func(_ string, n NIC, p ibvfd.PortInfo) {
		for _, dev := range netDevs(n, p) {
			if told[dev] {
				continue
			}
			told[dev] = true
			state, mtu := l.read("sys/class/net", dev, "operstate"), l.read("sys/class/net", dev, "mtu")
			size, ok := mtu.number()
			at := append(state.at(), mtu.where)
			// What a driver does not tell counts as up, if the port is.
			up, read := state.text == "up", state.text
			if state.text == "unknown" && p.State == ibvfd.PortActive {
				up, read = true, "its driver tells no state, the port is ACTIVE"
			}
			switch {
			case state.err != nil:
				l.unread(dev, state)
			case state.text == "down" || state.text == "lowerlayerdown":
				l.linkDown(dev, n, p, state)
			case !up:
				l.unknown(dev, at, "it is %q", state.text)
			case !ok:
				l.unknown(dev, at, "%s", orText(mtu))
			case packets(size) < largestPacket && !l.kind(n).isIWARP():
				l.warn(dev, at, "%s, MTU %d%s", read, size, inPackets(size)).fix("set an MTU of 9000, on the switch as well", "ip link set "+dev+" mtu 9000", "")
			default:
				l.pass(dev, at, "%s, MTU %d", read, size)
			}
		}
	})
}

// linkDown fails where nothing is up, and for a port that is in use. Others can be
// spare cards without a cable, whose ports NIC-STATE tells of.
func (l *look) linkDown(dev string, n NIC, p ibvfd.PortInfo, state reading) {
	result, read := ResultWarn, state.text
	if n.Software {
		read += "; the NIC is no hardware"
	} else if pf := l.physical(n); pf != n.Importer.PCI {
		read += fmt.Sprintf("; it is of a virtual function, of %v", *pf)
	} else if other := l.otherLink(dev, n); other != "" {
		read += fmt.Sprintf("; %s of the same card is up", other)
	} else if l.lent(n) {
		read += "; the NIC has virtual functions, which have network devices of their own"
	} else if p.State == ibvfd.PortActive {
		result, read = ResultFail, read+"; the port is ACTIVE"
	} else {
		other, open := l.anyUp()
		port := l.read(portDir(n, p, "state"))
		known := port.err == nil && p.State >= ibvfd.PortDown && p.State <= ibvfd.PortArmed
		switch {
		case other == "" && !open:
			result, read = ResultFail, read+"; no NIC is up"
		case other == "":
			result, read = ResultUnknown, read+"; whether another NIC is up is not known"
		case !known:
			result, read = ResultUnknown, read+"; the port's state is not known"
		default:
			read += fmt.Sprintf("; the port is not in use: %s", port.text)
		}
	}
	l.say(result, dev, state.at(), "%s", read).fix("set it up, with an MTU of 9000; look at cable and switch", "ip link set "+dev+" up mtu 9000", "")
}

// otherLink is another network device of a card that is up; "" without one.
func (l *look) otherLink(dev string, n NIC) string {
	for _, o := range l.s.NICs {
		if o.Name != n.Name && !l.sameCard(o, n) {
			continue
		}
		for _, other := range o.NetDevs {
			if other != dev && l.read("sys/class/net", other, "operstate").text == "up" {
				return other
			}
		}
	}
	return ""
}

// anyUp is a NIC's network device that is up, or a port of InfiniBand; "" without
// one. open says that some could not be read.
func (l *look) anyUp() (name string, open bool) {
	for _, n := range l.s.NICs {
		if n.Software {
			continue
		}
		open = open || len(n.Ports) == 0
		for _, p := range n.Ports {
			active := p.State == ibvfd.PortActive
			if p.LinkLayer != ibvfd.LinkEthernet {
				if active {
					return portName(n, p), false
				}
				open = open || l.read(portDir(n, p, "state")).err != nil
				continue
			}
			for _, dev := range netDevs(n, p) {
				switch state := l.read("sys/class/net", dev, "operstate").text; state {
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

// physical is the function of a NIC: of a virtual one its physical function. It is
// nil on no PCI bus.
func (l *look) physical(n NIC) *Addr {
	if n.Importer.PCI != nil {
		if pf := l.function(*n.Importer.PCI).PF; pf != nil {
			return pf
		}
	}
	return n.Importer.PCI
}

// sameCard reports two functions of one device, whatever virtual functions of it
// have for numbers.
func (l *look) sameCard(a, b NIC) bool {
	x, y := l.physical(a), l.physical(b)
	if x == nil || y == nil {
		return false
	}
	c, d := *x, *y
	c.Function, d.Function = 0, 0
	return c == d
}

// netDevs are the network devices of a port: those of its GIDs. What is only known
// to be the NIC's is of each of its ports.
func netDevs(n NIC, p ibvfd.PortInfo) []string {
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
