// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"cmp"
	"fmt"

	"github.com/gpurdma/gpurdma/pciaddr"
	"github.com/gpurdma/gpurdma/placement"
)

// Kind says how an importer reacts when the exporter wants to move the buffer.
type Kind int

// The kinds, and drivers of each.
const (
	KindUnknown Kind = iota // any kind except static; none only if the driver is not known to import dma-bufs ([Importer.Imports])
	Static                  // does not support moves; never peer to peer
	Pinned                  // pins until it unregisters: efa, bnxt_re, mana, ionic; irdma before 7.x
	Revocable               // pins until the exporter revokes the buffer: irdma
	Dynamic                 // maps again after a move: mlx5
	NoImporter              // the driver imports no dma-bufs
)

// String returns the kind in one word: "pinned".
func (k Kind) String() string {
	switch k {
	case KindUnknown:
		return "unknown"
	case Static:
		return "static"
	case Pinned:
		return "pinned"
	case Revocable:
		return "revocable"
	case Dynamic:
		return "dynamic"
	case NoImporter:
		return "none"
	}
	return fmt.Sprintf("invalid (%d)", int(k))
}

// Importer is a device that attaches to a buffer.
type Importer struct {
	PCI  *pciaddr.Addr // its function; nil for a device that is on no PCI bus
	Kind Kind
	// Unplaced says that the function is not known: the device's place in sysfs was not copied.
	Unplaced bool
	// PeerToPeer says that the driver can use addresses that have no page. All
	// RDMA drivers that import dma-bufs can do so.
	PeerToPeer bool
	// ByCPU says that no hardware moves the data: the test bed's rxe. It needs
	// an exporter that lets the kernel map the buffer.
	ByCPU bool
	// Imports says that a driver of KindUnknown is known to import dma-bufs.
	Imports bool
	// OutOfTree says that the driver is not, or may not be, the kernel's own. Then it is
	// not known whether PeerToPeer is true of it.
	OutOfTree bool
	// NoODP says that an mlx5 NIC is a NoImporter only because the kernel is built without
	// on-demand paging.
	NoODP bool
	// ODP says, for an mlx5 NIC, whether the kernel is built with on-demand paging.
	ODP placement.Answer
	// Driver is the driver of the function; "" if it is not known.
	Driver string
}

// DriverName returns the driver's name for messages. The driver of a software device is not
// known, because the device has no PCI function.
func (i Importer) DriverName() string {
	if i.Driver == UnknownDriver {
		return "its driver"
	}
	return cmp.Or(i.Driver, "its driver")
}
