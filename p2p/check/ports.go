// SPDX-License-Identifier: Apache-2.0

package check

import (
	"path"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// OwnNetwork is the kernel's word for a link layer that is neither InfiniBand
// nor Ethernet: EFA has such ports. The checks of networks do not apply to them.
const OwnNetwork = "Unknown"

// iWARP is the beginning of node_type for iWARP devices.
const iWARP = "4:"

// Kind reads the node type of an RDMA device.
func Kind(l *Look, n drivers.NIC) machine.Reading { return l.Read(IBDir(n), "node_type") }

// IsIWARP reports whether a node type is that of an iWARP device.
func IsIWARP(r machine.Reading) bool { return strings.HasPrefix(r.Text, iWARP) }

// PortDir returns the name of a file below the directory of a port, without the
// first slash.
func PortDir(n drivers.NIC, p ibdev.Port, elem ...string) string {
	return path.Join(append([]string{IBDir(n), "ports", strconv.Itoa(p.Num)}, elem...)...)
}

// Table reads the GID table of a port. The Err of the Reading says why the table
// cannot be read; it is nil if the table can be read. The Reading has no text.
func Table(l *Look, n drivers.NIC, p ibdev.Port) machine.Reading {
	entries, r := l.List(PortDir(n, p, "gids"))
	if r.Err == nil && len(entries) == 0 {
		r.Err = machine.ErrNoTable
	}
	if r.Err == nil && len(p.GIDs) == 0 {
		// A place that is not in use has a GID of zeros, or its file cannot be read.
		first := l.Read(PortDir(n, p, "gids", entries[0]))
		if first.Err == nil && !strings.Contains(first.Text, ":") {
			r.Err = machine.ErrNoTable
		}
	}
	return r
}
