// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd/gid"
)

func TestGIDFlag(t *testing.T) {
	for _, c := range []struct {
		args []string
		want gid.Wish
	}{
		{[]string{"10.0.0.1"}, gid.Wish{Subnet: netip.MustParsePrefix("10.0.0.1/32")}},
		{[]string{"::ffff:10.0.0.1"}, gid.Wish{Subnet: netip.MustParsePrefix("10.0.0.1/32")}},
		{[]string{"fe80::1%eth0"}, gid.Wish{Subnet: netip.MustParsePrefix("fe80::1/128")}},
		{[]string{"10.2.3.4/16"}, gid.Wish{Subnet: netip.MustParsePrefix("10.2.0.0/16")}},
		{[]string{"v2,ipv6", "dev=eth0.5, vlan=5"}, gid.Wish{RoCE: 2, Family: gid.IPv6, NetDev: "eth0.5", VLAN: 5}},
		{[]string{"v1,ipv4,vlan=none"}, gid.Wish{RoCE: 1, Family: gid.IPv4, VLAN: gid.Untagged}},
	} {
		var f GID
		for _, s := range c.args {
			if err := f.Set(s); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
		if f.Wish != c.want {
			t.Errorf("%q: %+v, want %+v", c.args, f.Wish, c.want)
		}
	}
	for _, s := range []string{"", "v3", "10.0.0", "10.0.0.1/33", "dev=", "vlan=0", "vlan=4095", "vlan=x", "v2,", "eth0"} {
		var f GID
		if err := f.Set(s); err == nil || !strings.Contains(err.Error(), "10.0.0.0/24") || f.Wish != (gid.Wish{}) {
			t.Errorf("%q: %v, %+v", s, err, f.Wish)
		}
	}
}
