// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Ordering says in which order what a NIC writes to a Buffer reaches the
// memory.
type Ordering int

// The orderings.
const (
	// RelaxedOrdering lets writes overtake one another on the way from the NIC
	// to the memory, within an operation and between two. PCIe and the bridges
	// on it then need not hold up one for another. A completion still says that
	// all is there: of the operation, and of those before it. Devices and
	// kernels that have no such thing ignore it (IBV_ACCESS_RELAXED_ORDERING in
	// ibv_reg_mr(3)).
	RelaxedOrdering Ordering = iota
	// StrictOrdering is for memory that is looked at instead of waiting for a
	// completion: a flag behind its data. What a NIC writes to it does not
	// overtake what the NIC has written before, in whatever ordering, to the
	// same device's memory; flag and data in memory of different devices have
	// no order.
	StrictOrdering
)

// String returns "relaxed" or "strict".
func (o Ordering) String() string {
	switch o {
	case RelaxedOrdering:
		return "relaxed"
	case StrictOrdering:
		return "strict"
	}
	return fmt.Sprintf("Ordering(%d)", int(o))
}

// access is what an MR needs for it.
func (o Ordering) access() ibvfd.Access {
	if o == StrictOrdering {
		return 0
	}
	return ibvfd.AccessRelaxedOrdering
}

// StrictSlice is Slice for flags: a peer that it is shared with writes to it in
// StrictOrdering, whatever the rest of the memory has. Receives and READs of
// one's own go by the memory's ordering: it is their completion that counts.
func (b *Buffer) StrictSlice(offset, size int64) (*Buffer, error) {
	return b.slice(offset, size, b.readOnly, StrictOrdering)
}
