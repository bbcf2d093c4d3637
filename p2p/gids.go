// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/placement"
)

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
			l.warn(name, r.at(), "IPv6 only, and many programs choose IPv4; index %d: NCCL_IB_GID_INDEX=%d, ib_write_bw -x %d", v6, v6, v6).addressed(n, p)
		case l.down(name, n, p):
		case kind.err != nil:
			l.unread(name, kind)
		case l.lent(n):
			l.warn(name, r.at(), "%s; it has virtual functions, which have addresses of their own", unrouted(p.GIDs)).addressed(n, p)
		case other != "": // this one may be for storage, or to manage the machine
			l.warn(name, r.at(), "%s; others can connect to %s", unrouted(p.GIDs), other).addressed(n, p)
		default:
			l.fail(name, r.at(), "%s", unrouted(p.GIDs)).addressed(n, p)
		}
	})
}

// addressed names the port's network device in the remedy, where it has one.
func (f *Finding) addressed(n NIC, p ibvfd.PortInfo) {
	if devs := netDevs(n, p); len(devs) == 1 {
		f.Remedy.Command = strings.ReplaceAll(f.Remedy.Command, "NETDEV", devs[0])
	}
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
			l.warn(name, r.at(), "no GID at all").addressed(n, p)
		default:
			l.warn(name, r.at(), "link-local ones only").addressed(n, p)
		}
	})
}
