// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
)

func TestGIDFlag(t *testing.T) {
	for _, c := range []struct {
		args []string
		want ibvfd.GIDWish
	}{
		{[]string{"10.0.0.1"}, ibvfd.GIDWish{Subnet: netip.MustParsePrefix("10.0.0.1/32")}},
		{[]string{"::ffff:10.0.0.1"}, ibvfd.GIDWish{Subnet: netip.MustParsePrefix("10.0.0.1/32")}},
		{[]string{"fe80::1%eth0"}, ibvfd.GIDWish{Subnet: netip.MustParsePrefix("fe80::1/128")}},
		{[]string{"10.2.3.4/16"}, ibvfd.GIDWish{Subnet: netip.MustParsePrefix("10.2.0.0/16")}},
		{[]string{"v2,ipv6", "dev=eth0.5, vlan=5"}, ibvfd.GIDWish{RoCE: 2, Family: ibvfd.IPv6, NetDev: "eth0.5", VLAN: 5}},
		{[]string{"v1,ipv4,vlan=none"}, ibvfd.GIDWish{RoCE: 1, Family: ibvfd.IPv4, VLAN: ibvfd.Untagged}},
	} {
		var f gidFlag
		for _, s := range c.args {
			if err := f.Set(s); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
		if f.wish != c.want {
			t.Errorf("%q: %+v, want %+v", c.args, f.wish, c.want)
		}
	}
	for _, s := range []string{"", "v3", "10.0.0", "10.0.0.1/33", "dev=", "vlan=0", "vlan=4095", "vlan=x", "v2,", "eth0"} {
		var f gidFlag
		if err := f.Set(s); err == nil || !strings.Contains(err.Error(), "10.0.0.0/24") || f.wish != (ibvfd.GIDWish{}) {
			t.Errorf("%q: %v, %+v", s, err, f.wish)
		}
	}
}
