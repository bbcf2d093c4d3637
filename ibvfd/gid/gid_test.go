// SPDX-License-Identifier: Apache-2.0

package gid

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// gids makes a table from "type address [device [vlan]]", numbered from 0.
func gids(lines ...string) []ibdev.GID {
	types := map[string]ibdev.GIDType{"ib": ibdev.GIDInfiniBand, "v1": ibdev.GIDRoCEv1, "v2": ibdev.GIDRoCEv2, "?": ibdev.GIDUnknown}
	table := make([]ibdev.GID, len(lines))
	for i, line := range lines {
		var typ, addr, dev string
		var vlan int
		_, _ = fmt.Sscan(line, &typ, &addr, &dev, &vlan)
		table[i] = ibdev.GID{Index: i, GID: netip.MustParseAddr(addr).As16(), Type: types[typ], NetDev: dev, VLAN: vlan}
	}
	return table
}

func TestWish(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	port := gids( // of a port with two addresses
		"v1 fe80::1 eth0", "v2 fe80::1 eth0", "v1 10.9.0.1 eth0", "v2 10.9.0.1 eth0", "v1 2001:db8::1 eth0", "v2 2001:db8::1 eth0",
	)
	vlan := append(port, gids("v2 10.5.0.1 eth0.5 5", "v2 10.6.0.1 eth0.6 6", "v2 fe80::2 eth0.5 5")...)
	for i := range vlan {
		vlan[i].Index = i
	}
	bond := gids("v2 fe80::1 bond0", "v1 10.1.0.1 bond0", "v2 10.1.0.1 bond0", "v2 10.1.7.1 bond0.7 7")
	var many []ibdev.GID
	for i := range 1000 {
		many = append(many, gids(fmt.Sprintf("v2 10.%d.%d.1 eth0", i/250, i%250))...)
		many[i].Index = i
	}
	subnets := gids("ib fe80::2:c903:1", "ib fec0::2:c903:1")
	for _, c := range []struct {
		name  string
		table []ibdev.GID
		link  ibdev.LinkLayer
		wish  Wish
		want  int    // index; -1: none
		words string // in the reason or the error
	}{
		{"no wish", port, ibdev.LinkEthernet, Wish{}, 3, "RoCE v2, IPv4, on eth0"},
		{"RoCE v1", port, ibdev.LinkEthernet, Wish{RoCE: 1}, 2, "RoCE v1, IPv4"},
		{"IPv6", port, ibdev.LinkEthernet, Wish{Family: IPv6}, 5, "RoCE v2, routable IPv6"},
		{"IPv6 v1", port, ibdev.LinkEthernet, Wish{Family: IPv6, RoCE: 1}, 4, "RoCE v1, routable IPv6"},
		{"a peer", port, ibdev.LinkEthernet, Wish{Peer: addr("10.9.0.7")}, 3, "29 bits in common with the peer 10.9.0.7"},
		{"a mapped peer", port, ibdev.LinkEthernet, Wish{Peer: addr("::ffff:10.9.0.7")}, 3, "peer 10.9.0.7"},
		{"a peer far away", port, ibdev.LinkEthernet, Wish{Peer: addr("192.0.2.1")}, 3, "0 bits in common"},
		{"an IPv6 peer", port, ibdev.LinkEthernet, Wish{Peer: addr("2001:db8::9")}, 5, "124 bits"},
		{"a link-local peer", port, ibdev.LinkEthernet, Wish{Peer: addr("fe80::9")}, 1, "link-local IPv6, 124 bits"},
		{"a subnet", vlan, ibdev.LinkEthernet, Wish{Subnet: prefix("10.6.0.9/16")}, 7, "in 10.6.0.0/16, on eth0.6, VLAN 6"},
		{"a device", vlan, ibdev.LinkEthernet, Wish{NetDev: "eth0.5"}, 6, "on eth0.5"},
		{"a VLAN", vlan, ibdev.LinkEthernet, Wish{VLAN: 5}, 6, "VLAN 5"},
		{"a VLAN and a family", vlan, ibdev.LinkEthernet, Wish{VLAN: 5, Family: IPv6}, 8, "link-local IPv6"},
		{"untagged", vlan, ibdev.LinkEthernet, Wish{VLAN: Untagged}, 3, "on eth0"},
		{"the peer's VLAN by its address", vlan, ibdev.LinkEthernet, Wish{Peer: addr("10.5.0.9")}, 6, "28 bits"},
		{"a bond", bond, ibdev.LinkEthernet, Wish{}, 2, "on bond0"},
		{"a bond's VLAN", bond, ibdev.LinkEthernet, Wish{Peer: addr("10.1.7.2")}, 3, "bond0.7, VLAN 7"},
		{"RoCE v2 before a longer prefix", gids("v1 10.1.0.1", "v2 10.2.0.1"), ibdev.LinkEthernet, Wish{Peer: addr("10.1.0.2")}, 1, "RoCE v2"},
		{"one of many", many, ibdev.LinkEthernet, Wish{Peer: addr("10.3.77.9")}, 827, "28 bits"},
		{"RoCE v1 only", gids("v1 fe80::1", "v1 10.0.0.1"), ibdev.LinkEthernet, Wish{}, 1, "RoCE v1, IPv4"},
		{"link-local IPv4", gids("v2 169.254.0.1"), ibdev.LinkEthernet, Wish{}, 0, "link-local IPv4, as there is no other"},
		{"iWARP", gids("ib 10.0.0.1"), ibdev.LinkEthernet, Wish{}, 0, "IB, IPv4"},
		{"InfiniBand", subnets, ibdev.LinkInfiniBand, Wish{}, 0, "the port's own GID"},
		{"InfiniBand, same subnet", subnets, ibdev.LinkInfiniBand, Wish{Peer: addr("fec0::2:c903:9")}, 1, "in the peer's subnet"},
		{"InfiniBand, other subnet", subnets, ibdev.LinkInfiniBand, Wish{Peer: addr("2001:db8::9")}, 1, "behind a router"},

		{"RoCE v2, none there", gids("v1 fe80::1", "v1 10.0.0.1"), ibdev.LinkEthernet, Wish{RoCE: 2}, -1, "2 RoCE v1, where RoCE v2 is wanted"},
		{"IPv4 peer, link-local only", gids("v1 fe80::1", "v2 fe80::1"), ibdev.LinkEthernet, Wish{Peer: addr("10.0.0.1")}, -1, "2 IPv6, and the peer 10.0.0.1 is IPv4"},
		{"IPv6 peer, IPv4 only", gids("v2 10.0.0.1"), ibdev.LinkEthernet, Wish{Peer: addr("2001:db8::1")}, -1, "1 IPv4, and the peer 2001:db8::1 is IPv6"},
		{"routable peer, link-local only", gids("v2 fe80::1"), ibdev.LinkEthernet, Wish{Peer: addr("2001:db8::1")}, -1, "1 link-local, and the peer 2001:db8::1 is not"},
		{"link-local peer, none of ours", gids("v2 2001:db8::1"), ibdev.LinkEthernet, Wish{Peer: addr("fe80::1")}, -1, "1 not link-local, and the peer fe80::1 is"},
		{"no such device", vlan, ibdev.LinkEthernet, Wish{NetDev: "eth9"}, -1, "6 on eth0, where eth9 is wanted; 2 on eth0.5"},
		{"device not known", gids("v2 10.0.0.1"), ibdev.LinkEthernet, Wish{NetDev: "eth9"}, -1, "on no network device"},
		{"no such VLAN", vlan, ibdev.LinkEthernet, Wish{VLAN: 7}, -1, "6 on no VLAN, where VLAN 7 is wanted; 2 on VLAN 5"},
		{"no untagged", gids("v2 10.0.0.1 eth0.5 5"), ibdev.LinkEthernet, Wish{VLAN: Untagged}, -1, "1 on VLAN 5, where none is wanted"},
		{"outside the subnet", port, ibdev.LinkEthernet, Wish{Subnet: prefix("10.8.0.0/16")}, -1, "6 outside 10.8.0.0/16"},
		{"RoCE on InfiniBand", subnets, ibdev.LinkInfiniBand, Wish{RoCE: 2}, -1, "2 InfiniBand, where RoCE is wanted"},
		{"an IPv4 peer on InfiniBand", subnets, ibdev.LinkInfiniBand, Wish{Peer: addr("10.0.0.1")}, -1, "and the peer 10.0.0.1 is IPv4"},
		{"an unknown RoCE", port, ibdev.LinkEthernet, Wish{RoCE: 3}, -1, "where RoCE v3 is wanted"},
		{"empty", nil, ibdev.LinkEthernet, Wish{}, -1, "the table is empty"},
		{"mixed", gids("? 10.0.0.1", "v2 ::", "v1 10.0.0.1"), ibdev.LinkEthernet, Wish{RoCE: 2}, -1, "1 of an unknown type; 1 zero; 1 RoCE v1"},
	} {
		g, why, err := c.wish.Choose(c.table, c.link)
		if c.want < 0 {
			if !errors.Is(err, ErrNone) || !errors.Is(err, unix.EADDRNOTAVAIL) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s: %v, %v; want ErrNoGID with %q", c.name, g, err, c.words)
			}
			continue
		}
		if err != nil || g.Index != c.want || !strings.Contains(why, c.words) {
			t.Errorf("%s: %v (%q), %v; want index %d with %q", c.name, g, why, err, c.want, c.words)
		}
	}
}

func TestVLANs(t *testing.T) {
	if _, err := vlans(); err != nil {
		t.Error(err)
	}
	attr := func(typ uint16, value string) string {
		n := 4 + len(value)
		return string([]byte{byte(n), 0, byte(typ), byte(typ >> 8)}) + value + strings.Repeat("\x00", -n&3)
	}
	data := attr(9, "x") + attr(1, "\x05\x01") // little endian
	for _, c := range []struct {
		info string
		want int
	}{
		{attr(1, "vlan\x00") + attr(2|unix.NLA_F_NESTED, data), 0x105},
		{attr(2, data) + attr(1, "vlan"), 0x105},
		{attr(1, "bond\x00") + attr(2, data), 0},
		{attr(1, "vlan"), 0},
		{attr(1, "vlan") + attr(2, attr(1, "\x05")), 0},
		{"\x03\x00\x01\x00", 0},
		{"\xff\x00\x01\x00", 0},
		{"\x05", 0},
		{"", 0},
	} {
		if got := vlanID([]byte(c.info)); got != c.want {
			t.Errorf("%q: %d, want %d", c.info, got, c.want)
		}
	}
}

func TestChooseGID(t *testing.T) {
	v6, local, v4 := netip.MustParseAddr("2001:0db8:0000:0000:0000:0000:0000:0001").As16(), netip.MustParseAddr("fe80:0000:0000:0000:0000:0000:0000:0001").As16(), netip.MustParseAddr("0000:0000:0000:0000:0000:ffff:0a09:0001").As16()
	for _, c := range []struct {
		name  string
		table []ibdev.GID
		link  ibdev.LinkLayer
		want  int // -1: none
	}{
		{"v2 over v1", []ibdev.GID{{Index: 0, GID: v4, Type: ibdev.GIDRoCEv1}, {Index: 1, GID: v6, Type: ibdev.GIDRoCEv2}}, ibdev.LinkEthernet, 1},
		{"IPv4 over IPv6", []ibdev.GID{{Index: 0, GID: v6, Type: ibdev.GIDRoCEv2}, {Index: 1, GID: v4, Type: ibdev.GIDRoCEv2}}, ibdev.LinkEthernet, 1},
		{"routable over link-local", []ibdev.GID{{Index: 0, GID: local, Type: ibdev.GIDRoCEv2}, {Index: 4, GID: v6, Type: ibdev.GIDRoCEv2}}, ibdev.LinkEthernet, 4},
		{"the first of equals", []ibdev.GID{{Index: 3, GID: v6, Type: ibdev.GIDRoCEv2}, {Index: 4, GID: v6, Type: ibdev.GIDRoCEv2}}, ibdev.LinkEthernet, 3},
		{"only v1", []ibdev.GID{{Index: 2, GID: local, Type: ibdev.GIDRoCEv1}}, ibdev.LinkEthernet, 2},
		{"InfiniBand", []ibdev.GID{{Index: 0, GID: local, Type: ibdev.GIDInfiniBand}, {Index: 1, GID: v6, Type: ibdev.GIDInfiniBand}}, ibdev.LinkInfiniBand, 0},
		{"unknown type", []ibdev.GID{{Index: 0, GID: v4, Type: ibdev.GIDUnknown}}, ibdev.LinkEthernet, -1},
		{"zero", []ibdev.GID{{Index: 0, Type: ibdev.GIDRoCEv2}}, ibdev.LinkEthernet, -1},
		{"empty", nil, ibdev.LinkEthernet, -1},
	} {
		g, why, err := Choose(c.table, c.link)
		if c.want < 0 {
			if !errors.Is(err, ErrNone) {
				t.Errorf("%s: %v, %v; want ErrNoGID", c.name, g, err)
			}
			continue
		}
		if err != nil || g.Index != c.want || why == "" {
			t.Errorf("%s: %v (%q), %v; want index %d", c.name, g, why, err, c.want)
		}
	}
}
