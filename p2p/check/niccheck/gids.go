// SPDX-License-Identifier: Apache-2.0

package niccheck

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/placement"
)

func gid(l *check.Look) {
	hardware, any := reached(l, false), reached(l, true)
	perRoCE(l, func(name string, n drivers.NIC, p ibvfd.PortInfo) {
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
		case slices.ContainsFunc(p.GIDs, func(g ibvfd.GID) bool { return g.Type == ibvfd.GIDUnknown }):
			l.Unknown(name, r.At(), "the type of a GID cannot be read")
		case v6 >= 0:
			addressed(l.Warn(name, r.At(), "IPv6 only, and many programs choose IPv4; index %d: NCCL_IB_GID_INDEX=%d, ib_write_bw -x %d", v6, v6, v6), n, p)
		case down(l, name, n, p):
		case kind.Err != nil:
			l.Unread(name, kind)
		case lent(l, n):
			addressed(l.Warn(name, r.At(), "%s; it has virtual functions, which have addresses of their own", unrouted(p.GIDs)), n, p)
		case other != "": // this one may be for storage, or to manage the machine
			addressed(l.Warn(name, r.At(), "%s; others can connect to %s", unrouted(p.GIDs), other), n, p)
		default:
			addressed(l.Fail(name, r.At(), "%s", unrouted(p.GIDs)), n, p)
		}
	})
}

// addressed names the port's network device in the remedy, where it has one.
func addressed(f *check.Finding, n drivers.NIC, p ibvfd.PortInfo) {
	if devs := netDevs(n, p); len(devs) == 1 {
		f.Remedy.Command = strings.ReplaceAll(f.Remedy.Command, "NETDEV", devs[0])
	}
}

// reached is a port that others can connect to; "" without one. software says
// whether those that no hardware carries out count.
func reached(l *check.Look, software bool) string {
	for _, n := range l.Subject.NICs {
		for _, p := range n.Ports {
			switch {
			case p.State != ibvfd.PortActive || n.Software && !software:
			case p.LinkLayer == ibvfd.LinkInfiniBand,
				p.LinkLayer == ibvfd.LinkEthernet && (routed(p.GIDs, true) >= 0 || routed(p.GIDs, false) >= 0 || check.IsIWARP(check.Kind(l, n))):
				return drivers.PortName(n, p)
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
	return check.Plural(len(table), "GID") + ", and none of RoCE v2 with an address that is routed"
}

func gidNamespace(l *check.Look) {
	perRoCE(l, func(name string, n drivers.NIC, p ibvfd.PortInfo) {
		r := check.Table(l, n, p)
		if len(p.GIDs) > 0 {
			l.Pass(name, r.At(), "%s", check.Plural(len(p.GIDs), "GID"))
			return
		}
		if r.Err != nil {
			l.Unread(name, r)
			return
		}
		kind := check.Kind(l, n)
		in, why, where := check.InContainer(l)
		where = append(r.At(), where...)
		switch {
		case in != placement.No && p.State == ibvfd.PortActive && kind.Err != nil:
			l.Unread(name, kind)
		case in == placement.Yes && p.State == ibvfd.PortActive:
			l.Fail(name, where, "empty, in a container (%s): the port's network device is in another namespace", why)
		case in == placement.AnswerUnknown && p.State == ibvfd.PortActive:
			l.Unknown(name, where, "empty, and whether this is a container is not known: %s", why)
		default:
			l.Warn(name, r.At(), "empty").Fix("look whether the port has a network device, and whether that is up", "rdma link", "")
		}
	})
}

func linkLocal(l *check.Look) {
	perRoCE(l, func(name string, n drivers.NIC, p ibvfd.PortInfo) {
		r := check.Table(l, n, p)
		routed := slices.ContainsFunc(p.GIDs, func(g ibvfd.GID) bool { return !g.Addr().IsLinkLocalUnicast() })
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
