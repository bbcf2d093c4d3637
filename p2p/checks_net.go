// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
)

var networkChecks = []Check{
	{ID: "NET-GID", Title: "There is a GID for RoCE v2 and IPv4", Worst: ResultWarn, run: (*look).gid,
		Expect: "a GID of type RoCE v2 with an IPv4 address", Why: "Programs connect by a GID. Most take one of RoCE v2 with an IPv4 address, and fail, or choose one that is not routed, where there is none.",
		Fix: Remedy{Change: "give the network device an IPv4 address", Command: "ip addr add ADDRESS/24 dev NETDEV"}, Ref: "NVIDIA/nccl#769, #426"},
	{ID: "NET-GID-NS", Title: "The GIDs' network device is in this namespace", Worst: ResultWarn, run: (*look).gidNamespace,
		Expect: "a GID table that is not empty", Why: "A container sees the GIDs of the network devices that it has: of others the table is empty.",
		Fix: Remedy{Change: "use the host's network, or give the container the network device"}, Ref: "NVIDIA/nccl#1573"},
	{ID: "NET-LINK", Title: "Network devices are up, and take large packets", Worst: ResultWarn, run: (*look).netLink,
		Expect: "up, with an MTU of 4200 or more", Why: "RoCE's packets of 4096 bytes and their headers have to fit.",
		Fix: Remedy{Change: "set it up, with an MTU of 9000", Command: "ip link set NETDEV up mtu 9000"}, Ref: "RoCE"},
	{ID: "NET-MTU", Title: "All NICs have one MTU", Worst: ResultWarn, run: (*look).netMTU,
		Expect: "one MTU", Why: "Queue pairs agree on the smaller one; one NIC that differs slows its peers down.",
		Fix: Remedy{Change: "set all to one MTU", Command: "ip link set NETDEV mtu 9000"}, Ref: "ibv_port_attr.active_mtu"},
	{ID: "NET-PFC", Title: "The network loses no packets", Worst: ResultWarn, run: (*look).losses,
		Expect: "no packet out of sequence, no timeout", Why: "RoCE without flow control (PFC) or congestion control (ECN) loses packets under load, and each loss costs a round trip and more.",
		Fix: Remedy{Change: "configure PFC or ECN on NIC and switch", Command: "mlnx_qos -i NETDEV --pfc 0,0,0,1,0,0,0,0"}, Ref: "/sys/class/infiniband/*/ports/*/hw_counters"},
	{ID: "NET-IPV6LL", Title: "There are addresses beyond link-local ones", Worst: ResultWarn, run: (*look).linkLocal,
		Expect: "a GID that is routed", Why: "Link-local GIDs look alike on all ports of a host, and reach no other subnet.",
		Fix: Remedy{Change: "give the network device an IPv4 address", Command: "ip addr add ADDRESS/24 dev NETDEV"}, Ref: "NVIDIA/nccl#1131"},
	{ID: "NET-SM", Title: "InfiniBand has a subnet manager", Worst: ResultFail, run: (*look).subnetManager,
		Expect: "an sm_lid other than 0", Why: "Without one, ports get no address.",
		Fix: Remedy{Change: "start one", Command: "systemctl start opensm"}, Ref: "opensm(8)"},
	{ID: "NET-LOOPBACK", Title: "The proof does not need the network", Worst: ResultWarn, run: (*look).loopback,
		Expect: "any", Why: "dmabuf-reg verify moves its bytes over one port and back: faults of the network do not blame the GPU.", Ref: "dmabuf-reg verify"},
}

// perPort runs f for each port of a link layer.
func (l *look) perPort(layer ibvfd.LinkLayer, f func(name string, n NIC, p ibvfd.PortInfo)) {
	for _, n := range l.s.NICs {
		for _, p := range n.Ports {
			switch p.LinkLayer {
			case layer:
				f(portName(n, p), n, p)
			case ibvfd.LinkUnspecified:
				l.unknown(portName(n, p), []string{"/" + portDir(n, p, "link_layer")}, "what network it is on is not known")
			}
		}
	}
	if len(l.found) == 0 {
		l.skip("no port of %v", layer)
	}
}

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
	l.perPort(ibvfd.LinkEthernet, func(name string, n NIC, p ibvfd.PortInfo) {
		r := l.table(n, p)
		i := slices.IndexFunc(p.GIDs, func(g ibvfd.GID) bool { return g.Type == ibvfd.GIDRoCEv2 && g.Addr().Is4() })
		switch {
		case i >= 0:
			l.pass(name, r.at(), "index %d: NCCL_IB_GID_INDEX=%d, ib_write_bw -x %d", p.GIDs[i].Index, p.GIDs[i].Index, p.GIDs[i].Index)
		case r.err != nil:
			l.unread(name, r)
		case slices.ContainsFunc(p.GIDs, func(g ibvfd.GID) bool { return g.Type == ibvfd.GIDUnknown }):
			l.unknown(name, r.at(), "the type of a GID cannot be read")
		default:
			l.warn(name, r.at(), "%s, and none of them", plural(len(p.GIDs), "GID"))
		}
	})
}

func (l *look) gidNamespace() {
	l.perPort(ibvfd.LinkEthernet, func(name string, n NIC, p ibvfd.PortInfo) {
		switch r := l.table(n, p); {
		case len(p.GIDs) > 0:
			l.pass(name, r.at(), "%s", plural(len(p.GIDs), "GID"))
		case r.err != nil:
			l.unread(name, r)
		default:
			l.warn(name, r.at(), "empty")
		}
	})
}

// roceMTU is room for packets of 4096 bytes with their headers.
const roceMTU = 4200

func (l *look) netLink() {
	l.perPort(ibvfd.LinkEthernet, func(_ string, n NIC, _ ibvfd.PortInfo) {
		for _, dev := range n.NetDevs {
			state, mtu := l.read("sys/class/net", dev, "operstate"), l.read("sys/class/net", dev, "mtu")
			size, ok := mtu.number()
			at := append(state.at(), mtu.where)
			switch {
			case state.err != nil:
				l.unread(dev, state)
			case state.text == "down" || state.text == "lowerlayerdown":
				l.warn(dev, at, "%s", state.text).fix("set it up, with an MTU of 9000", "ip link set "+dev+" up mtu 9000", "")
			case state.text != "up":
				l.unknown(dev, at, "it is %q", state.text)
			case !ok:
				l.unknown(dev, at, "%s", orText(mtu))
			case size < roceMTU:
				l.warn(dev, at, "%s, MTU %d", state.text, size).fix("set an MTU of 9000, on the switch as well", "ip link set "+dev+" mtu 9000", "")
			default:
				l.pass(dev, at, "%s, MTU %d", state.text, size)
			}
		}
	})
}

func (l *look) netMTU() {
	var sizes, names []string
	at := []string{"/sys/class/net/*/mtu"}
	for _, n := range l.s.NICs {
		if n.Software {
			continue
		}
		for _, dev := range n.NetDevs {
			r := l.read("sys/class/net", dev, "mtu")
			if _, ok := r.number(); !ok {
				l.unknown(dev, r.at(), "%s", orText(r))
				continue
			}
			names = append(names, dev+" "+r.text)
			if !slices.Contains(sizes, r.text) {
				sizes = append(sizes, r.text)
			}
		}
	}
	switch {
	case len(sizes) > 1:
		l.warn("", at, "%s", strings.Join(names, ", "))
	case len(sizes) == 1:
		l.pass("", at, "%s", sizes[0])
	case len(l.found) == 0:
		l.skip("no network device of an RDMA NIC")
	}
}

// losses are counters that a network without loss leaves at zero.
var lossCounters = []string{"out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rx_discards_phy"}

func (l *look) losses() {
	l.perPort(ibvfd.LinkEthernet, func(name string, n NIC, p ibvfd.PortInfo) {
		dir := portDir(n, p, "hw_counters")
		counters, r := l.list(dir)
		if r.gone() || r.err == nil && !slices.ContainsFunc(lossCounters, func(c string) bool { return slices.Contains(counters, c) }) {
			l.unknown(name, r.at(), "the driver counts no losses")
			return
		}
		if r.err != nil {
			l.unread(name, r)
			return
		}
		var lost []string
		for _, c := range lossCounters {
			if !slices.Contains(counters, c) {
				continue
			}
			v := l.read(dir, c)
			count, ok := v.number()
			if !ok {
				l.unknown(name, v.at(), "%s", orText(v))
				return
			}
			if count > 0 {
				lost = append(lost, c+" "+v.text)
			}
		}
		if len(lost) > 0 {
			l.warn(name, r.at(), "since the driver was loaded: %s", strings.Join(lost, ", "))
			return
		}
		l.pass(name, r.at(), "none")
	})
}

func (l *look) linkLocal() {
	l.perPort(ibvfd.LinkEthernet, func(name string, n NIC, p ibvfd.PortInfo) {
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
	l.skip("this program moves nothing")
}
