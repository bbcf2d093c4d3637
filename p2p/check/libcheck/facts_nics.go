// SPDX-License-Identifier: Apache-2.0

package libcheck

import (
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/check/niccheck"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/variables"
	"github.com/gpurdma/gpurdma/placement"
)

// nics returns the RDMA devices, and the cxi devices of Slingshot.
func nics(l *check.Look) []variables.NIC {
	var out []variables.NIC
	for _, n := range l.Subject.NICs {
		nic := variables.NIC{
			Name: n.Name, Driver: n.Importer.Driver, Software: n.Software, Bond: check.LAGOf(l, n).Is,
			DataDirect: niccheck.DataDirect(l, n), OwnRoute: ownRoute(l, n),
		}
		for _, p := range n.Ports {
			nic.Ports = append(nic.Ports, port(l, n, p))
		}
		out = append(out, nic)
	}
	names, _ := l.List("sys/class/cxi")
	for _, name := range names {
		out = append(out, variables.NIC{Name: name, Driver: "cxi_ss1", Bond: placement.No, DataDirect: placement.No})
	}
	return out
}

// port returns the facts about a port that decide whether a GID index is right. Only for an active RoCE port a
// program chooses a GID.
func port(l *check.Look, n drivers.NIC, p ibdev.Port) variables.Port {
	out := variables.Port{Num: p.Num}
	layer := l.Read(check.PortDir(n, p, "link_layer"))
	kind := check.Kind(l, n)
	switch {
	case n.Software || p.LinkLayer == ibdev.LinkInfiniBand || layer.Text == check.OwnNetwork || check.IsIWARP(kind):
		out.RoCE = placement.No
	case p.LinkLayer != ibdev.LinkEthernet || p.State < ibdev.PortDown || p.State > ibdev.PortActive:
	case p.State != ibdev.PortActive:
		out.RoCE = placement.No
	case kind.Err == nil:
		out.RoCE = placement.Yes
	}
	if r := check.Table(l, n, p); r.Err != nil {
		return out
	}
	out.GIDs = map[int]variables.GID{}
	for _, g := range p.GIDs {
		of := variables.GIDOther
		switch {
		case g.Type == ibdev.GIDUnknown:
			of = variables.GIDUnread
		case g.Type == ibdev.GIDRoCEv2 && g.Addr().IsLinkLocalUnicast():
			of = variables.GIDLinkLocal
		case g.Type == ibdev.GIDRoCEv2:
			of = variables.GIDRoCEv2
		}
		out.GIDs[g.Index] = of
	}
	return out
}

// ownRoute says whether a NIC's driver registers GPU memory without a client of ib_core. Amazon's build of efa
// does so, and shows it by an attribute (efa_p2p.c, efa_sysfs.c). For cxi_ss1 it is an option of the build, which
// no file shows.
func ownRoute(l *check.Look, n drivers.NIC) placement.Answer {
	if n.Importer.Driver != "efa" {
		return placement.No
	}
	if l.Machine.OutOfTree("efa") == placement.No {
		return placement.No
	}
	for _, name := range []string{"p2p", "gdr"} {
		switch r := l.Read(check.IBDir(n), "device", name); {
		case r.Err == nil && strings.TrimSpace(r.Text) != "" && r.Text != "0":
			return placement.Yes
		case r.Err == nil:
			return placement.No
		}
	}
	return placement.AnswerUnknown
}
