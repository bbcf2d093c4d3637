// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
)

// Network has the checks of the network.
var Network = []check.Check{
	{ID: "NET-GID", Title: "There is a GID for RoCE v2 and IPv4", Worst: p2p.ResultFail, Run: gid,
		Expect: "a GID of type RoCE v2 with an IPv4 address", Why: "Programs connect by a GID. Most take one of RoCE v2 with an IPv4 address, and fail, or choose one that is not routed, where there is none.",
		Fix: chain.Remedy{Change: "give the network device an IPv4 address", Command: "ip addr add ADDRESS/24 dev NETDEV"}, Ref: "NVIDIA/nccl#769, #426",
		ByHand: "grep . /sys/class/infiniband/NIC/ports/1/gids/* /sys/class/infiniband/NIC/ports/1/gid_attrs/types/*"},
	{ID: "NET-GID-NS", Title: "The GIDs' network device is in this namespace", Worst: p2p.ResultFail, Run: gidNamespace,
		Expect: "a GID table that is not empty", Why: "A container sees the GIDs of the network devices that it has: of others the table is empty, and nothing connects.",
		Fix: chain.Remedy{Change: "use the host's network, or give the container the network device"}, Ref: "NVIDIA/nccl#1573",
		ByHand: "grep . /sys/class/infiniband/NIC/ports/1/gids/*"},
	{ID: "NET-LINK", Title: "Network devices are up, and take large packets", Worst: p2p.ResultFail, Run: netLink,
		Expect: "up, with an MTU of 4192 or more", Why: "A port whose network device is down moves no data. The port uses RoCE packets of 4096 bytes only if the MTU has room for their headers, too.",
		Fix: chain.Remedy{Change: "set it up, with an MTU of 9000", Command: "ip link set NETDEV up mtu 9000"}, Ref: "Documentation/networking/operstates.rst",
		ByHand: "cat /sys/class/net/NETDEV/operstate /sys/class/net/NETDEV/mtu"},
	{ID: "NET-MTU", Title: "All NICs have one MTU", Worst: p2p.ResultWarn, Run: netMTU,
		Expect: "one MTU", Why: "RoCE's packets are as large as the MTU of the network device lets them be, of 256 to 4096 bytes. Queue pairs agree on the smaller one; one NIC that differs slows its peers down.",
		Fix: chain.Remedy{Change: "set all to one MTU", Command: "ip link set NETDEV mtu 9000"}, Ref: "iboe_get_mtu()",
		ByHand: "grep . /sys/class/net/*/mtu"},
	{ID: "NET-PFC", Title: "The network loses no packets", Worst: p2p.ResultWarn, Run: lostPackets,
		Expect: "no packet out of sequence, none sent again", Why: "RoCE without flow control (PFC) or congestion control (ECN) loses packets under load, and each loss costs a round trip and more. The NIC counts lost packets. On this machine the check also asks the network device whether PFC is on.",
		Fix: chain.Remedy{Change: "configure PFC or ECN on NIC and switch", Command: "dcb pfc set dev NETDEV prio-pfc 3:on"}, Ref: "/sys/class/infiniband/*/ports/*/hw_counters",
		ByHand: "grep . /sys/class/infiniband/NIC/ports/1/hw_counters/*\ndcb pfc show dev NETDEV"},
	{ID: "NET-IPV6LL", Title: "There are addresses beyond link-local ones", Worst: p2p.ResultWarn, Run: linkLocal,
		Expect: "a GID that is routed", Why: "Link-local GIDs look alike on all ports of a host, and reach no other subnet.",
		Fix: chain.Remedy{Change: "give the network device an IPv4 address", Command: "ip addr add ADDRESS/24 dev NETDEV"}, Ref: "NVIDIA/nccl#1131",
		ByHand: "grep . /sys/class/infiniband/NIC/ports/1/gids/*"},
	{ID: "NET-SM", Title: "InfiniBand has a subnet manager", Worst: p2p.ResultFail, Run: subnetManager,
		Expect: "an sm_lid other than 0", Why: "Without one, ports get no address.",
		Fix: chain.Remedy{Change: "check that the fabric's subnet manager runs, on a switch or on a host, and that this port reaches it"}, Ref: "opensm(8)",
		ByHand: "cat /sys/class/infiniband/NIC/ports/1/sm_lid"},
	{ID: "NET-LOOPBACK", Title: "The proof does not need the network", Worst: p2p.ResultWarn, Run: loopback, Links: []chain.Link{chain.Proof},
		Expect: "both ends on one port", Why: "The proof, and dmabuf-reg verify, move their bytes over one port and back: a fault of the network cannot look like a fault of the GPU.", Ref: "dmabuf-reg verify",
		ByHand: "dmabuf-reg verify --gpu GPU --nic NIC"},
}

// perPort runs f for each port of a link layer.
func perPort(l *check.Look, layer ibdev.LinkLayer, f func(name string, n drivers.NIC, p ibdev.Port)) {
	for _, n := range l.Subject.NICs {
		for _, p := range n.Ports {
			switch p.LinkLayer {
			case layer:
				f(drivers.PortName(n, p), n, p)
			case ibdev.LinkUnspecified:
				if l.Read(check.PortDir(n, p, "link_layer")).Text == check.OwnNetwork {
					continue
				}
				l.Unknown(drivers.PortName(n, p), []string{"/" + check.PortDir(n, p, "link_layer")}, "the kind of its network is not known")
			}
		}
	}
	if len(l.Found) == 0 {
		l.Skip("no port of %v", layer)
	}
}

// perRoCE runs f for each Ethernet port that is not iWARP's. iWARP connects by IP addresses, over TCP:
// its GIDs do not matter, and it sends no RoCE packets.
func perRoCE(l *check.Look, f func(name string, n drivers.NIC, p ibdev.Port)) {
	perPort(l, ibdev.LinkEthernet, func(name string, n drivers.NIC, p ibdev.Port) {
		if kind := check.Kind(l, n); check.IsIWARP(kind) {
			l.Say(p2p.ResultSkip, name, kind.At(), "iWARP, which connects by IP addresses")
			return
		}
		f(name, n, p)
	})
}

// down reports whether a port is not known to be active, and adds a finding about such a port: a skip, because the
// settings of a port that is not in use are no fault, or an unknown if its state cannot be read.
func down(l *check.Look, name string, n drivers.NIC, p ibdev.Port) bool {
	state := l.Read(check.PortDir(n, p, "state"))
	switch {
	case p.State == ibdev.PortActive:
		return false
	case state.Err != nil:
		l.Unread(name, state)
	case p.State < ibdev.PortDown || p.State > ibdev.PortArmed:
		l.Unknown(name, state.At(), "the port's state is %q", state.Text)
	default:
		l.Say(p2p.ResultSkip, name, state.At(), "the port is not in use: %s", state.Text)
	}
	return true
}

// hasVirtual reports whether a NIC has virtual functions, which programs may use in its place.
func hasVirtual(l *check.Look, n drivers.NIC) bool {
	if n.Importer.PCI == nil {
		return false
	}
	physical := check.Once(l, "physical functions with virtual ones", func() map[string]bool {
		out := map[string]bool{}
		names, _ := l.List("sys/bus/pci/devices")
		for _, name := range names {
			if r := l.Link("sys/bus/pci/devices", name, "physfn"); r.Err == nil {
				out[check.Base(r.Text)] = true
			}
		}
		return out
	})
	return physical[n.Importer.PCI.String()]
}

func subnetManager(l *check.Look) {
	perPort(l, ibdev.LinkInfiniBand, func(name string, n drivers.NIC, p ibdev.Port) {
		r := l.Read(check.PortDir(n, p, "sm_lid"))
		lid, ok := r.Number()
		switch {
		case !ok:
			l.Unknown(name, r.At(), "%s", check.OrText(r))
		case lid == 0:
			l.Fail(name, r.At(), "0")
		default:
			l.Pass(name, r.At(), "%s", r.Text)
		}
	})
}

func loopback(l *check.Look) {
	check.PerProof(l, "no data was moved", func(name string, p p2p.Pair) {
		if r := p.Proof.Steps[p2p.RungWrite].Result; r == p2p.ResultPass || r == p2p.ResultFail {
			l.Pass(name, nil, "both ends were on one port of %s", p.NIC.Name)
		}
	})
}
