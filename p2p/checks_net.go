// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"path"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
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
		Expect: "no packet out of sequence, none sent again", Why: "RoCE without flow control (PFC) or congestion control (ECN) loses packets under load, and each loss costs a round trip and more. That packets are lost the NIC counts; whether PFC is on its network device is asked, on this machine.",
		Fix: Remedy{Change: "configure PFC or ECN on NIC and switch", Command: "dcb pfc set dev NETDEV prio-pfc 3:on"}, Ref: "/sys/class/infiniband/*/ports/*/hw_counters"},
	{ID: "NET-IPV6LL", Title: "There are addresses beyond link-local ones", Worst: ResultWarn, run: (*look).linkLocal,
		Expect: "a GID that is routed", Why: "Link-local GIDs look alike on all ports of a host, and reach no other subnet.",
		Fix: Remedy{Change: "give the network device an IPv4 address", Command: "ip addr add ADDRESS/24 dev NETDEV"}, Ref: "NVIDIA/nccl#1131"},
	{ID: "NET-SM", Title: "InfiniBand has a subnet manager", Worst: ResultFail, run: (*look).subnetManager,
		Expect: "an sm_lid other than 0", Why: "Without one, ports get no address.",
		Fix: Remedy{Change: "see that the fabric's one runs, on a switch or on one of the hosts, and that this port reaches it"}, Ref: "opensm(8)"},
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
	lenders := once(l, "physical functions with virtual ones", func() map[string]bool {
		out := map[string]bool{}
		names, _ := l.list("sys/bus/pci/devices")
		for _, name := range names {
			if r := l.link("sys/bus/pci/devices", name, "physfn"); r.err == nil {
				out[base(r.text)] = true
			}
		}
		return out
	})
	return lenders[n.Importer.PCI.String()]
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
