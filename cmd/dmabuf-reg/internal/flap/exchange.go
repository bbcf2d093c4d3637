// SPDX-License-Identifier: Apache-2.0

package flap

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/sysfs"
)

// spareExchange refuses to cut what the exchange with the server goes through: without it no rail has
// another link. way returns the network device through which packets to an address go.
func spareExchange(list []Cable, server net.Addr, way func(netip.Addr) (string, error), sys sysfs.FS) error {
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
		upper, err := uppers(sys, x.NetDev)
		if err != nil {
			return uncut(x.NIC, "whether TCP to "+to.String()+" goes through "+x.NetDev+" is not known", "see that /sys is mounted, and is that of this network namespace", err)
		}
		if through == x.NetDev || slices.Contains(upper, through) {
			return uncut(x.NIC, fmt.Sprintf("TCP to %v goes through %s: with it all rails would be cut", to, through),
				"reach serve at an address of another network, or leave this NIC out of --nic", unix.EBUSY)
		}
	}
	return nil
}

// uppers returns the network devices that lie on another one, as VLANs and bonds do.
func uppers(sys sysfs.FS, dev string) (list []string, err error) {
	files, err := sys.List("class/net/" + dev)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name, ok := strings.CutPrefix(f, "upper_")
		if !ok {
			continue
		}
		more, err := uppers(sys, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is in another network namespace
			return nil, err
		}
		list = append(append(list, name), more...)
	}
	return list, nil
}
