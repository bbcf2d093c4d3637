// SPDX-License-Identifier: Apache-2.0

package ibvfd_test

import (
	"fmt"
	"net/netip"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// An MR goes over to another buffer. The old one stays registered until the
// peer has the new keys and nothing under the old ones is in flight.
func ExampleMR_Rereg() {
	var mr *ibvfd.MR     // registered for a peer's WRITEs
	var next *dmabuf.Buf // the buffer that takes its place
	tell := func(s ibvfd.MRState) error { return nil }
	if mr == nil {
		fmt.Println("needs a NIC")
		return
	}
	err := mr.Rereg(ibvfd.ReregAttr{
		Change:  ibvfd.ReregMemory,
		MRAttr:  ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: next, Length: uint64(next.Size())},
		KeepOld: true,
	})
	if err != nil {
		fmt.Println(err) // the MR is as it was
		return
	}
	if err := tell(mr.State()); err == nil {
		fmt.Println(mr.DropOld())
	}
	// Output: needs a NIC
}

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
