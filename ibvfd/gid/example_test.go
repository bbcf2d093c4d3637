// SPDX-License-Identifier: Apache-2.0

package gid_test

import (
	"fmt"
	"net/netip"

	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// Of a port's GIDs, the one that reaches the peer, and why; or why none does.
func ExampleWish_Choose() {
	table := []ibdev.GID{
		{Index: 0, GID: netip.MustParseAddr("fe80::1").As16(), Type: ibdev.GIDRoCEv2},
		{Index: 1, GID: netip.MustParseAddr("10.1.0.1").As16(), Type: ibdev.GIDRoCEv1},
		{Index: 2, GID: netip.MustParseAddr("10.1.0.1").As16(), Type: ibdev.GIDRoCEv2},
		{Index: 3, GID: netip.MustParseAddr("10.2.0.1").As16(), Type: ibdev.GIDRoCEv2},
	}
	wish := gid.Wish{Peer: netip.MustParseAddr("10.2.0.9")}
	chosen, why, _ := wish.Choose(table, ibdev.LinkEthernet)
	fmt.Println(chosen.Index, why)
	_, _, err := wish.Choose(table[:1], ibdev.LinkEthernet)
	fmt.Println(err)
	// Output:
	// 3 RoCE v2, IPv4, 28 bits in common with the peer 10.2.0.9
	// no usable GID: cannot assign requested address: 1 IPv6, and the peer 10.2.0.9 is IPv4
}
