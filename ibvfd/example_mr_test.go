// SPDX-License-Identifier: Apache-2.0

package ibvfd_test

import (
	"fmt"
	"net/netip"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Peer-direct needs a client in the kernel: a machine without has none.
func ExamplePeerClients() {
	clients, err := ibvfd.PeerClients("/nonexistent/sys")
	fmt.Println(clients, err)
	// Output: [] <nil>
}

// Of a port's GIDs, the one that reaches the peer, and why; or why none does.
func ExampleGIDWish_Choose() {
	table := []ibvfd.GID{
		{Index: 0, GID: netip.MustParseAddr("fe80::1").As16(), Type: ibvfd.GIDRoCEv2},
		{Index: 1, GID: netip.MustParseAddr("10.1.0.1").As16(), Type: ibvfd.GIDRoCEv1},
		{Index: 2, GID: netip.MustParseAddr("10.1.0.1").As16(), Type: ibvfd.GIDRoCEv2},
		{Index: 3, GID: netip.MustParseAddr("10.2.0.1").As16(), Type: ibvfd.GIDRoCEv2},
	}
	wish := ibvfd.GIDWish{Peer: netip.MustParseAddr("10.2.0.9")}
	gid, why, _ := wish.Choose(table, ibvfd.LinkEthernet)
	fmt.Println(gid.Index, why)
	_, _, err := wish.Choose(table[:1], ibvfd.LinkEthernet)
	fmt.Println(err)
	// Output:
	// 3 RoCE v2, IPv4, 28 bits in common with the peer 10.2.0.9
	// no usable GID: cannot assign requested address: 1 IPv6, and the peer 10.2.0.9 is IPv4
}
