// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// gids makes a table from "type address [device [vlan]]", numbered from 0.
func gids(lines ...string) []GID {
	types := map[string]GIDType{"ib": GIDInfiniBand, "v1": GIDRoCEv1, "v2": GIDRoCEv2, "?": GIDUnknown}
	table := make([]GID, len(lines))
	for i, line := range lines {
		var typ, addr, dev string
		var vlan int
		_, _ = fmt.Sscan(line, &typ, &addr, &dev, &vlan)
		table[i] = GID{Index: i, GID: netip.MustParseAddr(addr).As16(), Type: types[typ], NetDev: dev, VLAN: vlan}
	}
	return table
}

func TestGIDWish(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	port := gids( // what a port with two addresses shows
		"v1 fe80::1 eth0", "v2 fe80::1 eth0", "v1 10.9.0.1 eth0", "v2 10.9.0.1 eth0", "v1 2001:db8::1 eth0", "v2 2001:db8::1 eth0",
	)
	vlan := append(port, gids("v2 10.5.0.1 eth0.5 5", "v2 10.6.0.1 eth0.6 6", "v2 fe80::2 eth0.5 5")...)
	for i := range vlan {
		vlan[i].Index = i
	}
	bond := gids("v2 fe80::1 bond0", "v1 10.1.0.1 bond0", "v2 10.1.0.1 bond0", "v2 10.1.7.1 bond0.7 7")
	var many []GID
	for i := range 1000 {
		many = append(many, gids(fmt.Sprintf("v2 10.%d.%d.1 eth0", i/250, i%250))...)
		many[i].Index = i
	}
	subnets := gids("ib fe80::2:c903:1", "ib fec0::2:c903:1")
	for _, c := range []struct {
		name  string
		table []GID
		link  LinkLayer
		wish  GIDWish
		want  int    // index; -1: none
		words string // in the reason or the error
	}{
		{"no wish", port, LinkEthernet, GIDWish{}, 3, "RoCE v2, IPv4, on eth0"},
		{"RoCE v1", port, LinkEthernet, GIDWish{RoCE: 1}, 2, "RoCE v1, IPv4"},
		{"IPv6", port, LinkEthernet, GIDWish{Family: IPv6}, 5, "RoCE v2, routable IPv6"},
		{"IPv6 v1", port, LinkEthernet, GIDWish{Family: IPv6, RoCE: 1}, 4, "RoCE v1, routable IPv6"},
		{"a peer", port, LinkEthernet, GIDWish{Peer: addr("10.9.0.7")}, 3, "29 bits in common with the peer 10.9.0.7"},
		{"a mapped peer", port, LinkEthernet, GIDWish{Peer: addr("::ffff:10.9.0.7")}, 3, "peer 10.9.0.7"},
		{"a peer far away", port, LinkEthernet, GIDWish{Peer: addr("192.0.2.1")}, 3, "0 bits in common"},
		{"an IPv6 peer", port, LinkEthernet, GIDWish{Peer: addr("2001:db8::9")}, 5, "124 bits"},
		{"a link-local peer", port, LinkEthernet, GIDWish{Peer: addr("fe80::9")}, 1, "link-local IPv6, 124 bits"},
		{"a subnet", vlan, LinkEthernet, GIDWish{Subnet: prefix("10.6.0.9/16")}, 7, "in 10.6.0.0/16, on eth0.6, VLAN 6"},
		{"a device", vlan, LinkEthernet, GIDWish{NetDev: "eth0.5"}, 6, "on eth0.5"},
		{"a VLAN", vlan, LinkEthernet, GIDWish{VLAN: 5}, 6, "VLAN 5"},
		{"a VLAN and a family", vlan, LinkEthernet, GIDWish{VLAN: 5, Family: IPv6}, 8, "link-local IPv6"},
		{"untagged", vlan, LinkEthernet, GIDWish{VLAN: Untagged}, 3, "on eth0"},
		{"the peer's VLAN by its address", vlan, LinkEthernet, GIDWish{Peer: addr("10.5.0.9")}, 6, "28 bits"},
		{"a bond", bond, LinkEthernet, GIDWish{}, 2, "on bond0"},
		{"a bond's VLAN", bond, LinkEthernet, GIDWish{Peer: addr("10.1.7.2")}, 3, "bond0.7, VLAN 7"},
		{"RoCE v2 before a longer prefix", gids("v1 10.1.0.1", "v2 10.2.0.1"), LinkEthernet, GIDWish{Peer: addr("10.1.0.2")}, 1, "RoCE v2"},
		{"one of many", many, LinkEthernet, GIDWish{Peer: addr("10.3.77.9")}, 827, "28 bits"},
		{"RoCE v1 only", gids("v1 fe80::1", "v1 10.0.0.1"), LinkEthernet, GIDWish{}, 1, "RoCE v1, IPv4"},
		{"link-local IPv4", gids("v2 169.254.0.1"), LinkEthernet, GIDWish{}, 0, "link-local IPv4, as there is no other"},
		{"iWARP", gids("ib 10.0.0.1"), LinkEthernet, GIDWish{}, 0, "IB, IPv4"},
		{"InfiniBand", subnets, LinkInfiniBand, GIDWish{}, 0, "the port's own GID"},
		{"InfiniBand, same subnet", subnets, LinkInfiniBand, GIDWish{Peer: addr("fec0::2:c903:9")}, 1, "in the peer's subnet"},
		{"InfiniBand, other subnet", subnets, LinkInfiniBand, GIDWish{Peer: addr("2001:db8::9")}, 1, "behind a router"},

		{"RoCE v2, none there", gids("v1 fe80::1", "v1 10.0.0.1"), LinkEthernet, GIDWish{RoCE: 2}, -1, "2 RoCE v1, where RoCE v2 is wanted"},
		{"IPv4 peer, link-local only", gids("v1 fe80::1", "v2 fe80::1"), LinkEthernet, GIDWish{Peer: addr("10.0.0.1")}, -1, "2 IPv6, and the peer 10.0.0.1 is IPv4"},
		{"IPv6 peer, IPv4 only", gids("v2 10.0.0.1"), LinkEthernet, GIDWish{Peer: addr("2001:db8::1")}, -1, "1 IPv4, and the peer 2001:db8::1 is IPv6"},
		{"routable peer, link-local only", gids("v2 fe80::1"), LinkEthernet, GIDWish{Peer: addr("2001:db8::1")}, -1, "1 link-local, and the peer 2001:db8::1 is not"},
		{"link-local peer, none of ours", gids("v2 2001:db8::1"), LinkEthernet, GIDWish{Peer: addr("fe80::1")}, -1, "1 not link-local, and the peer fe80::1 is"},
		{"no such device", vlan, LinkEthernet, GIDWish{NetDev: "eth9"}, -1, "6 on eth0, where eth9 is wanted; 2 on eth0.5"},
		{"device not known", gids("v2 10.0.0.1"), LinkEthernet, GIDWish{NetDev: "eth9"}, -1, "on no network device"},
		{"no such VLAN", vlan, LinkEthernet, GIDWish{VLAN: 7}, -1, "6 on no VLAN, where VLAN 7 is wanted; 2 on VLAN 5"},
		{"no untagged", gids("v2 10.0.0.1 eth0.5 5"), LinkEthernet, GIDWish{VLAN: Untagged}, -1, "1 on VLAN 5, where none is wanted"},
		{"outside the subnet", port, LinkEthernet, GIDWish{Subnet: prefix("10.8.0.0/16")}, -1, "6 outside 10.8.0.0/16"},
		{"RoCE on InfiniBand", subnets, LinkInfiniBand, GIDWish{RoCE: 2}, -1, "2 InfiniBand, where RoCE is wanted"},
		{"an IPv4 peer on InfiniBand", subnets, LinkInfiniBand, GIDWish{Peer: addr("10.0.0.1")}, -1, "and the peer 10.0.0.1 is IPv4"},
		{"an unknown RoCE", port, LinkEthernet, GIDWish{RoCE: 3}, -1, "where RoCE v3 is wanted"},
		{"empty", nil, LinkEthernet, GIDWish{}, -1, "the table is empty"},
		{"mixed", gids("? 10.0.0.1", "v2 ::", "v1 10.0.0.1"), LinkEthernet, GIDWish{RoCE: 2}, -1, "1 of an unknown type; 1 zero; 1 RoCE v1"},
	} {
		g, why, err := c.wish.Choose(c.table, c.link)
		if c.want < 0 {
			if !errors.Is(err, ErrNoGID) || !errors.Is(err, unix.EADDRNOTAVAIL) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s: %v, %v; want ErrNoGID with %q", c.name, g, err, c.words)
			}
			continue
		}
		if err != nil || g.Index != c.want || !strings.Contains(why, c.words) {
			t.Errorf("%s: %v (%q), %v; want index %d with %q", c.name, g, why, err, c.want, c.words)
		}
	}
}

// A context chooses from its port's table, with network devices if they matter.
func TestContextChooseGID(t *testing.T) {
	pd := scripted(t, newScript(), &kernel{reg: always(0)})
	c := pd.Context()
	if g, why, err := c.ChooseGID(1, GIDWish{NetDev: "eth7", Peer: netip.MustParseAddr("10.9.0.2")}); err != nil || g.Index != 1 || g.NetDev != "eth7" {
		t.Errorf("%v, %q, %v", g, why, err)
	}
	if _, _, err := c.ChooseGID(1, GIDWish{VLAN: 5}); !errors.Is(err, ErrNoGID) || !strings.Contains(err.Error(), "choose a GID on roce0: port 1") {
		t.Errorf("VLAN 5: %v", err)
	}
	if _, _, err := c.ChooseGID(0, GIDWish{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("port 0: %v", err)
	}
	if _, _, err := c.ChooseGID(2, GIDWish{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no table: %v", err)
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
