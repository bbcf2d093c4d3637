// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"net/netip"
	"testing"
)

// A host name with addresses of both families is reached from the source's own family.
func TestAddressOfTheSourcesFamily(t *testing.T) {
	four, six := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")
	mapped := netip.AddrFrom16(four.As16())
	for _, c := range []struct {
		list []netip.Addr
		from string
		want netip.Addr
	}{
		{[]netip.Addr{six, four}, "", six},
		{[]netip.Addr{six, four}, "10.0.0.1", four},
		{[]netip.Addr{six, mapped}, "10.0.0.1", mapped},
		{[]netip.Addr{four, six}, "fd00::1", six},
		{[]netip.Addr{four, six}, "::", four}, // any address of this machine
		{[]netip.Addr{six}, "10.0.0.1", six},  // the kernel says what is wrong
	} {
		var from netip.Addr
		if c.from != "" {
			from = netip.MustParseAddr(c.from)
		}
		if got := choose(c.list, from); got != c.want {
			t.Errorf("from %q, of %v: %v, want %v", c.from, c.list, got, c.want)
		}
	}
}
