// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"cmp"
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Kind is what an importer does when the exporter wants to move the buffer.
type Kind int

// The kinds, and drivers of each.
const (
	KindUnknown Kind = iota // any but Static; NoImporter too, unless Importer.Imports says otherwise
	Static                  // knows nothing of moves; never peer to peer
	Pinned                  // pins for good: efa, bnxt_re, mana, ionic; irdma before 7.x
	Revocable               // pins until it is told to stop: irdma
	Dynamic                 // maps again after a move: mlx5
	NoImporter              // the driver imports no dma-bufs
)

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

// Importer is a device that a buffer is attached to.
type Importer struct {
	PCI  *machine.Addr // its function; nil for one that is on no PCI bus
	Kind Kind
	// PeerToPeer says that the driver can use addresses that have no page. All
	// RDMA drivers that import at all can.
	PeerToPeer bool
	// ByCPU says that no hardware moves the data: the test bed's rxe. It needs
	// an exporter that lets the kernel map the buffer.
	ByCPU bool
	// Imports says that a driver of KindUnknown imports dma-bufs at all: that
	// it was asked.
	Imports bool
	// OutOfTree says that the driver is not the kernel's own, or may not be: what
	// PeerToPeer says of it is then not known.
	OutOfTree bool
	// NoODP says that a NIC of mlx5 is of NoImporter for the kernel's build alone.
	NoODP bool
	// ODP is whether the kernel is built with on-demand paging, of a NIC of mlx5.
	ODP placement.Answer
	// Driver is that of the function, "" if it is not known.
	Driver string
}

// DriverName is for people: software has no function, and so none that is known.
func (i Importer) DriverName() string {
	if i.Driver == UnknownDriver {
		return "its driver"
	}
	return cmp.Or(i.Driver, "its driver")
}
