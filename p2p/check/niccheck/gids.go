// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/placement"
)

func gid(l *check.Look) {
	hardware, any := reached(l, false), reached(l, true)
	perRoCE(l, func(name string, n drivers.NIC, p ibdev.Port) {
		r, kind := check.Table(l, n, p), check.Kind(l, n)
		v4, v6 := routed(p.GIDs, true), routed(p.GIDs, false)
		other := hardware
		if n.Software {
			other = any
		}
		switch {
		case v4 >= 0:
			l.Pass(name, r.At(), "index %d: NCCL_IB_GID_INDEX=%d, ib_write_bw -x %d", v4, v4, v4)
		case r.Err != nil:
			l.Unread(name, r)
		case slices.ContainsFunc(p.GIDs, func(g ibdev.GID) bool { return g.Type == ibdev.GIDUnknown }):
			l.Unknown(name, r.At(), "the type of a GID cannot be read")
		case v6 >= 0:
			addressed(l.Warn(name, r.At(), "IPv6 only, and many programs choose IPv4; index %d: NCCL_IB_GID_INDEX=%d, ib_write_bw -x %d", v6, v6, v6), n, p)
		case down(l, name, n, p):
		case kind.Err != nil:
			l.Unread(name, kind)
		case hasVirtual(l, n):
			addressed(l.Warn(name, r.At(), "%s; it has virtual functions, which have addresses of their own", unrouted(p.GIDs)), n, p)
		case other != "": // this one may be for storage, or to manage the machine
			addressed(l.Warn(name, r.At(), "%s; others can connect to %s", unrouted(p.GIDs), other), n, p)
		default:
			addressed(l.Fail(name, r.At(), "%s", unrouted(p.GIDs)), n, p)
		}
	})
}

// addressed writes the name of the port's network device into the remedy's command, in place of NETDEV, if the
// port has one network device.
func addressed(f *check.Finding, n drivers.NIC, p ibdev.Port) {
	if devs := netDevs(n, p); len(devs) == 1 {
		f.Remedy.Command = strings.ReplaceAll(f.Remedy.Command, "NETDEV", devs[0])
	}
}

// reached returns the name of a port that other hosts can connect to; "" if there is none. It looks at ports of
// software NICs only if software is true.
func reached(l *check.Look, software bool) string {
	for _, n := range l.Subject.NICs {
		for _, p := range n.Ports {
			switch {
			case p.State != ibdev.PortActive || n.Software && !software:
			case p.LinkLayer == ibdev.LinkInfiniBand,
				p.LinkLayer == ibdev.LinkEthernet && (routed(p.GIDs, true) >= 0 || routed(p.GIDs, false) >= 0 || check.IsIWARP(check.Kind(l, n))):
				return drivers.PortName(n, p)
			}
		}
	}
	return ""
}

// routed returns the index of the first GID of RoCE v2 that has an IPv4 address, or,
// if v4 is false, a global IPv6 address; -1 if there is none.
func routed(table []ibdev.GID, v4 bool) int {
	for _, g := range table {
		a := g.Addr()
		if g.Type == ibdev.GIDRoCEv2 && a.Is4() == v4 && (v4 || a.IsGlobalUnicast()) {
			return g.Index
		}
	}
	return -1
}

func unrouted(table []ibdev.GID) string {
	if len(table) == 0 {
		return "no GID"
	}
	return human.Plural(len(table), "GID") + ", and none of RoCE v2 with an address that is routed"
}

// gidNamespace reports a GID table without GIDs. sysfs shows a process only the GIDs of the network devices in
// its network namespace. If the table of an active port is empty, its network device is in another namespace.
func gidNamespace(l *check.Look) {
	perRoCE(l, func(name string, n drivers.NIC, p ibdev.Port) {
		r := check.Table(l, n, p)
		if len(p.GIDs) > 0 {
			l.Pass(name, r.At(), "%s", human.Plural(len(p.GIDs), "GID"))
			return
		}
		if r.Err != nil {
			l.Unread(name, r)
			return
		}
		kind, dev := check.Kind(l, n), ownNetDev(l, n)
		in, why, where := namespaced(l)
		where = append(r.At(), where...)
		switch {
		case in != placement.No && p.State == ibdev.PortActive && kind.Err != nil:
			l.Unread(name, kind)
		case p.State == ibdev.PortActive && dev != "":
			l.Warn(name, where, "empty, and its network device %s is in this namespace", dev).Fix("set the network device down and up, so that the kernel fills the table anew", "ip link set "+dev+" down; ip link set "+dev+" up", "ends the port's connections")
		case in == placement.Yes && p.State == ibdev.PortActive:
			l.Fail(name, where, "empty, in a container (%s): the port's network device is in another namespace", why)
		case in == placement.AnswerUnknown && p.State == ibdev.PortActive:
			l.Unknown(name, where, "empty, and whether this is a container is not known: %s", why)
		case p.State == ibdev.PortActive:
			l.Warn(name, r.At(), "empty: the port's network device is in another network namespace, as of a container that it was given to").
				Fix("use the NIC there; or take the network device back", "ip netns exec NAMESPACE ip link set NETDEV netns 1", "the container loses it")
		default:
			l.Warn(name, r.At(), "empty").Fix("look whether the port has a network device, and whether that is up", "rdma link", "")
		}
	})
}

// namespaced says whether this program runs in a container, or in another network namespace than process 1.
// Its results are those of check.InContainer.
func namespaced(l *check.Look) (placement.Answer, string, []string) {
	in, why, where := check.InContainer(l)
	if in != placement.No {
		return in, why, where
	}
	own, first := l.Link("proc/self/ns/net"), l.Link("proc/1/ns/net")
	if own.Err == nil && first.Err == nil && own.Text != first.Text {
		return placement.Yes, "this is another network namespace than that of process 1", own.At()
	}
	return in, why, where
}

// ownNetDev returns a network device of the NIC's PCI function in this namespace; "" if there is none.
func ownNetDev(l *check.Look, n drivers.NIC) string {
	if n.Importer.PCI == nil {
		return ""
	}
	names, _ := l.List("sys/bus/pci/devices", n.Importer.PCI.String(), "net")
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

func linkLocal(l *check.Look) {
	perRoCE(l, func(name string, n drivers.NIC, p ibdev.Port) {
		r := check.Table(l, n, p)
		routed := slices.ContainsFunc(p.GIDs, func(g ibdev.GID) bool { return !g.Addr().IsLinkLocalUnicast() })
		switch {
		case routed:
			l.Pass(name, r.At(), "there are")
		case r.Err != nil:
			l.Unread(name, r)
		case len(p.GIDs) == 0:
			addressed(l.Warn(name, r.At(), "no GID at all"), n, p)
		default:
			addressed(l.Warn(name, r.At(), "link-local ones only"), n, p)
		}
	})
}
