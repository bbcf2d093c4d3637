// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// spareExchange refuses to cut what the exchange with the server goes through: without it no rail has
// another link. way returns the network device through which packets to an address go.
func spareExchange(list []cable, server net.Addr, way func(netip.Addr) (string, error), sys sysfs.FS) error {
	tcp, ok := server.(*net.TCPAddr)
	if !ok {
		return nil
	}
	to := tcp.AddrPort().Addr().Unmap()
	through := to.Zone() // of a link-local address
	if through == "" {
		var err error
		if through, err = way(to); err != nil {
			return err
		}
	}
	for _, x := range list {
		if through == x.netdev || above(sys, through, x.netdev) {
			return uncut(x.nic, fmt.Sprintf("TCP to %v goes through %s: with it all rails would be cut", to, through),
				"reach serve at an address of another network, or leave this NIC out of --nic", unix.EBUSY)
		}
	}
	return nil
}

// above reports whether a network device lies on another one, as a VLAN or a bond does.
func above(sys sysfs.FS, dev, lower string) bool { return slices.Contains(uppers(sys, lower), dev) }

// uppers returns the network devices that lie on another one.
func uppers(sys sysfs.FS, dev string) (list []string) {
	files, _ := sys.List("class/net/" + dev)
	for _, f := range files {
		if name, ok := strings.CutPrefix(f, "upper_"); ok {
			list = append(append(list, name), uppers(sys, name)...)
		}
	}
	return list
}
