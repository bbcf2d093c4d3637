// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/placement"
)

var networkChecks = []Check{
	{ID: "NET-GID", Title: "There is a GID for RoCE v2 and IPv4", Worst: ResultFail, run: (*look).gid,
		Expect: "a GID of type RoCE v2 with an IPv4 address", Why: "Programs connect by a GID. Most take one of RoCE v2 with an IPv4 address, and fail, or choose one that is not routed, where there is none.",
		Fix: Remedy{Change: "give the network device an IPv4 address", Command: "ip addr add ADDRESS/24 dev NETDEV"}, Ref: "NVIDIA/nccl#769, #426"},
	{ID: "NET-GID-NS", Title: "The GIDs' network device is in this namespace", Worst: ResultFail, run: (*look).gidNamespace,
		Expect: "a GID table that is not empty", Why: "A container sees the GIDs of the network devices that it has: of others the table is empty, and nothing connects.",
		Fix: Remedy{Change: "use the host's network, or give the container the network device"}, Ref: "NVIDIA/nccl#1573"},
	{ID: "NET-LINK", Title: "Network devices are up, and take large packets", Worst: ResultFail, run: (*look).netLink,
		Expect: "up, with an MTU of 4192 or more", Why: "A machine of which no NIC is up moves nothing, and neither does a port whose network device is down. RoCE's packets of 4096 bytes have to fit with their headers, or they are smaller.",
		Fix: Remedy{Change: "set it up, with an MTU of 9000", Command: "ip link set NETDEV up mtu 9000"}, Ref: "Documentation/networking/operstates.rst"},
	{ID: "NET-MTU", Title: "All NICs have one MTU", Worst: ResultWarn, run: (*look).netMTU,
		Expect: "one MTU", Why: "RoCE's packets are as large as the MTU of the network device lets them be, of 256 to 4096 bytes. Queue pairs agree on the smaller one; one NIC that differs slows its peers down.",
		Fix: Remedy{Change: "set all to one MTU", Command: "ip link set NETDEV mtu 9000"}, Ref: "iboe_get_mtu()"},
	{ID: "NET-PFC", Title: "The network loses no packets", Worst: ResultWarn, run: (*look).lostPackets,
		Expect: "no packet out of sequence, none sent again", Why: "RoCE without flow control (PFC) or congestion control (ECN) loses packets under load, and each loss costs a round trip and more. Whether they are configured no file says; that packets are lost the NIC counts.",
		Fix: Remedy{Change: "configure PFC or ECN on NIC and switch", Command: "mlnx_qos -i NETDEV --pfc 0,0,0,1,0,0,0,0"}, Ref: "/sys/class/infiniband/*/ports/*/hw_counters"},
	{ID: "NET-IPV6LL", Title: "There are addresses beyond link-local ones", Worst: ResultWarn, run: (*look).linkLocal,
		Expect: "a GID that is routed", Why: "Link-local GIDs look alike on all ports of a host, and reach no other subnet.",
		Fix: Remedy{Change: "give the network device an IPv4 address", Command: "ip addr add ADDRESS/24 dev NETDEV"}, Ref: "NVIDIA/nccl#1131"},
	{ID: "NET-SM", Title: "InfiniBand has a subnet manager", Worst: ResultFail, run: (*look).subnetManager,
		Expect: "an sm_lid other than 0", Why: "Without one, ports get no address.",
		Fix: Remedy{Change: "start one", Command: "systemctl start opensm"}, Ref: "opensm(8)"},
	{ID: "NET-LOOPBACK", Title: "The proof does not need the network", Worst: ResultWarn, run: (*look).loopback,
		Expect: "both ends on one port", Why: "The proof, and dmabuf-reg verify, move their bytes over one port and back: faults of the network do not blame the GPU.", Ref: "dmabuf-reg verify"},
}

// perPort runs f for each port of a link layer.
func (l *look) perPort(layer ibvfd.LinkLayer, f func(name string, n NIC, p ibvfd.PortInfo)) {
	for _, n := range l.s.NICs {
		for _, p := range n.Ports {
			switch p.LinkLayer {
			case layer:
				f(portName(n, p), n, p)
			case ibvfd.LinkUnspecified:
				if l.read(portDir(n, p, "link_layer")).text == ownNetwork {
					continue
				}
				l.unknown(portName(n, p), []string{"/" + portDir(n, p, "link_layer")}, "what network it is on is not known")
			}
		}
	}
	if len(l.found) == 0 {
		l.skip("no port of %v", layer)
	}
}

// ownNetwork is the kernel's word for a link layer that is neither InfiniBand nor
// Ethernet, as EFA's: nothing here is about such a port.
const ownNetwork = "Unknown"

// perRoCE runs f for each Ethernet port but those of iWARP, which connect by IP
// addresses, over TCP: they have no GIDs that matter, and no packets of RoCE.
func (l *look) perRoCE(f func(name string, n NIC, p ibvfd.PortInfo)) {
	l.perPort(ibvfd.LinkEthernet, func(name string, n NIC, p ibvfd.PortInfo) {
		if kind := l.kind(n); kind.isIWARP() {
			l.say(ResultSkip, name, kind.at(), "iWARP, which connects by IP addresses")
			return
		}
		f(name, n, p)
	})
}

// iWARP is how node_type begins of iWARP's devices.
const iWARP = "4:"

func (l *look) kind(n NIC) reading { return l.read(ibDir(n), "node_type") }

func (r reading) isIWARP() bool { return strings.HasPrefix(r.text, iWARP) }

func portDir(n NIC, p ibvfd.PortInfo, elem ...string) string {
	return path.Join(append([]string{ibDir(n), "ports", strconv.Itoa(p.Num)}, elem...)...)
}

// table says whether a port's GID table can be read.
func (l *look) table(n NIC, p ibvfd.PortInfo) reading {
	entries, r := l.list(portDir(n, p, "gids"))
	if r.err == nil && len(entries) == 0 {
		r.err = errNoTable
	}
	if r.err == nil && len(p.GIDs) == 0 {
		// Places that are not in use read as zero, or not at all.
		first := l.read(portDir(n, p, "gids", entries[0]))
		if first.err == nil && !strings.Contains(first.text, ":") {
			r.err = errNoTable
		}
	}
	return r
}

func (l *look) gid() {
	hardware, any := l.reached(false), l.reached(true)
	l.perRoCE(func(name string, n NIC, p ibvfd.PortInfo) {
		r, kind := l.table(n, p), l.kind(n)
		v4, v6 := routed(p.GIDs, true), routed(p.GIDs, false)
		other := hardware
		if n.Software {
			other = any
		}
		switch {
		case v4 >= 0:
			l.pass(name, r.at(), "index %d: NCCL_IB_GID_INDEX=%d, ib_write_bw -x %d", v4, v4, v4)
		case r.err != nil:
			l.unread(name, r)
		case slices.ContainsFunc(p.GIDs, func(g ibvfd.GID) bool { return g.Type == ibvfd.GIDUnknown }):
			l.unknown(name, r.at(), "the type of a GID cannot be read")
		case v6 >= 0:
			l.warn(name, r.at(), "IPv6 only, and many programs choose IPv4; index %d: NCCL_IB_GID_INDEX=%d, ib_write_bw -x %d", v6, v6, v6)
		case l.down(name, n, p):
		case kind.err != nil:
			l.unread(name, kind)
		case l.lent(n):
			l.warn(name, r.at(), "%s; it has virtual functions, which have addresses of their own", unrouted(p.GIDs))
		case other != "": // this one may be for storage, or to manage the machine
			l.warn(name, r.at(), "%s; others can connect to %s", unrouted(p.GIDs), other)
		default:
			l.fail(name, r.at(), "%s", unrouted(p.GIDs))
		}
	})
}

// reached is a port that others can connect to; "" without one. software says
// whether those that no hardware carries out count.
func (l *look) reached(software bool) string {
	for _, n := range l.s.NICs {
		for _, p := range n.Ports {
			switch {
			case p.State != ibvfd.PortActive || n.Software && !software:
			case p.LinkLayer == ibvfd.LinkInfiniBand,
				p.LinkLayer == ibvfd.LinkEthernet && (routed(p.GIDs, true) >= 0 || routed(p.GIDs, false) >= 0 || l.kind(n).isIWARP()):
				return portName(n, p)
			}
		}
	}
	return ""
}

// routed is the index of the first GID of RoCE v2 that has an IPv4 address, or one
// of IPv6 that routers take; -1 without one.
func routed(table []ibvfd.GID, v4 bool) int {
	for _, g := range table {
		a := g.Addr()
		if g.Type == ibvfd.GIDRoCEv2 && a.Is4() == v4 && (v4 || a.IsGlobalUnicast()) {
			return g.Index
		}
	}
	return -1
}

func unrouted(table []ibvfd.GID) string {
	if len(table) == 0 {
		return "no GID"
	}
	return plural(len(table), "GID") + ", and none of RoCE v2 with an address that is routed"
}

// down skips a port that is not in use, and leaves open one whose state cannot be
// read: what it lacks is no fault.
func (l *look) down(name string, n NIC, p ibvfd.PortInfo) bool {
	state := l.read(portDir(n, p, "state"))
	switch {
	case p.State == ibvfd.PortActive:
		return false
	case state.err != nil:
		l.unread(name, state)
	case p.State < ibvfd.PortDown || p.State > ibvfd.PortArmed:
		l.unknown(name, state.at(), "the port's state is %q", state.text)
	default:
		l.say(ResultSkip, name, state.at(), "the port is not in use: %s", state.text)
	}
	return true
}

// lent reports a NIC with virtual functions: programs use those.
func (l *look) lent(n NIC) bool {
	if n.Importer.PCI == nil {
		return false
	}
	if l.lenders == nil {
		l.lenders = map[string]bool{}
		names, _ := l.list("sys/bus/pci/devices")
		for _, name := range names {
			if r := l.link("sys/bus/pci/devices", name, "physfn"); r.err == nil {
				l.lenders[base(r.text)] = true
			}
		}
	}
	return l.lenders[n.Importer.PCI.String()]
}

func (l *look) gidNamespace() {
	l.perRoCE(func(name string, n NIC, p ibvfd.PortInfo) {
		r := l.table(n, p)
		if len(p.GIDs) > 0 {
			l.pass(name, r.at(), "%s", plural(len(p.GIDs), "GID"))
			return
		}
		if r.err != nil {
			l.unread(name, r)
			return
		}
		kind := l.kind(n)
		in, why, where := l.inContainer()
		where = append(r.at(), where...)
		switch {
		case in != placement.No && p.State == ibvfd.PortActive && kind.err != nil:
			l.unread(name, kind)
		case in == placement.Yes && p.State == ibvfd.PortActive:
			l.fail(name, where, "empty, in a container (%s): the port's network device is in another namespace", why)
		case in == placement.AnswerUnknown && p.State == ibvfd.PortActive:
			l.unknown(name, where, "empty, and whether this is a container is not known: %s", why)
		default:
			l.warn(name, r.at(), "empty").fix("look whether the port has a network device, and whether that is up", "rdma link", "")
		}
	})
}

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

// RoCE's packets, and what the kernel leaves for their headers: GRH or IP, UDP,
// BTH, those of XRC and of atomic operations, and the checksum.
const (
	largestPacket  = 4 << 10
	smallestPacket = 256
	packetHeaders  = 40 + 8 + 12 + 4 + 28 + 4
)

// packets is how many bytes RoCE's packets have on a network device: a power of
// two; 0 if not even the smallest fit.
func packets(mtu uint64) uint64 {
	for size := uint64(largestPacket); size >= smallestPacket; size /= 2 {
		if mtu >= size+packetHeaders {
			return size
		}
	}
	return 0
}

func inPackets(mtu uint64) string {
	if n := packets(mtu); n > 0 {
		return fmt.Sprintf(": RoCE's packets have %d bytes", n)
	}
	return ": RoCE's packets do not fit"
}

func (l *look) netMTU() {
	var sizes []uint64
	var names []string
	told := map[string]bool{}
	at := []string{"/sys/class/net/*/mtu"}
	for _, n := range l.s.NICs {
		for _, p := range n.Ports {
			if n.Software || p.LinkLayer == ibvfd.LinkInfiniBand {
				continue
			}
			if l.kind(n).isIWARP() {
				l.say(ResultSkip, portName(n, p), l.kind(n).at(), "iWARP, whose packets are TCP's")
				continue
			}
			for _, dev := range netDevs(n, p) {
				if told[dev] {
					continue
				}
				told[dev] = true
				r := l.read("sys/class/net", dev, "mtu")
				size, ok := r.number()
				if !ok {
					l.unknown(dev, r.at(), "%s", orText(r))
					continue
				}
				names = append(names, dev+" "+r.text)
				if !slices.Contains(sizes, size) {
					sizes = append(sizes, size)
				}
			}
		}
	}
	slices.Sort(sizes)
	switch {
	case len(sizes) > 1 && packets(sizes[0]) == packets(sizes[len(sizes)-1]):
		l.warn("", at, "%s%s on all", strings.Join(names, ", "), inPackets(sizes[0]))
	case len(sizes) > 1:
		l.warn("", at, "%s; with the first of %d%s", strings.Join(names, ", "), sizes[0], inPackets(sizes[0]))
	case len(sizes) == 1:
		l.pass("", at, "%d%s", sizes[0], inPackets(sizes[0]))
	case len(l.found) == 0:
		l.skip("no network device of an RDMA NIC")
	}
}

func (l *look) lostPackets() {
	l.perPort(ibvfd.LinkEthernet, func(name string, n NIC, p ibvfd.PortInfo) {
		if n.Software {
			l.say(ResultSkip, name, nil, "no hardware")
			return
		}
		if l.down(name, n, p) {
			return
		}
		at := []string{"/" + portDir(n, p, "hw_counters")}
		all, bad := l.m.losses(n.Name, p.Num)
		grown := l.grown(name)
		lost := slices.DeleteFunc(slices.Clone(all), func(c count) bool { return c.n == 0 })
		var text []string
		for _, c := range lost {
			text = append(text, c.String())
		}
		switch {
		case len(grown) > 0:
			l.warn(name, at, "while the proof ran, on a port that others use as well: %s", strings.Join(grown, ", "))
		case len(lost) > 0:
			l.warn(name, at, "since the driver was loaded: %s", strings.Join(text, ", "))
		case bad.err != nil:
			l.unread(name, bad)
		case len(all) == 0:
			l.unknown(name, at, "no counter of lost packets is known here of %s", n.Importer.driver())
		default:
			l.pass(name, at, "none, by %s", plural(len(all), "counter"))
		}
	})
}

// grown are a port's counters of losses that grew during proofs.
func (l *look) grown(port string) []string {
	var out []string
	for _, p := range l.pairs {
		if p.Proof == nil {
			continue
		}
		for _, text := range p.Proof.Watch.Losses {
			if rest, ok := strings.CutPrefix(text, port+": "); ok && !slices.Contains(out, rest) {
				out = append(out, rest)
			}
		}
	}
	return out
}

func (l *look) linkLocal() {
	l.perRoCE(func(name string, n NIC, p ibvfd.PortInfo) {
		r := l.table(n, p)
		routed := slices.ContainsFunc(p.GIDs, func(g ibvfd.GID) bool { return !g.Addr().IsLinkLocalUnicast() })
		switch {
		case routed:
			l.pass(name, r.at(), "there are")
		case r.err != nil:
			l.unread(name, r)
		case len(p.GIDs) == 0:
			l.warn(name, r.at(), "no GID at all")
		default:
			l.warn(name, r.at(), "link-local ones only")
		}
	})
}

func (l *look) subnetManager() {
	l.perPort(ibvfd.LinkInfiniBand, func(name string, n NIC, p ibvfd.PortInfo) {
		r := l.read(portDir(n, p, "sm_lid"))
		lid, ok := r.number()
		switch {
		case !ok:
			l.unknown(name, r.at(), "%s", orText(r))
		case lid == 0:
			l.fail(name, r.at(), "0")
		default:
			l.pass(name, r.at(), "%s", r.text)
		}
	})
}

func (l *look) loopback() {
	l.perProof("no data was moved", func(name string, p Pair) {
		if r := p.Proof.Steps[RungWrite].Result; r == ResultPass || r == ResultFail {
			l.pass(name, nil, "both ends were on one port of %s", p.NIC.Name)
		}
	})
}
