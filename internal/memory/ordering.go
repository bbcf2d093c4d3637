// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Ordering says in which order a NIC's writes to a Buffer reach the memory.
type Ordering int

// The orderings.
const (
	// RelaxedOrdering lets writes overtake one another on the way from the NIC to the memory,
	// within an operation and between two. PCIe and its bridges then need not delay one write
	// for another. A completion still says that all bytes have arrived: those of its operation,
	// and of those before it. Devices and kernels without relaxed ordering ignore it
	// (IBV_ACCESS_RELAXED_ORDERING in ibv_reg_mr(3)).
	RelaxedOrdering Ordering = iota
	// StrictOrdering is for memory that a program polls without waiting for a completion, such
	// as a flag that follows its data. A NIC's write to it does not overtake the NIC's earlier
	// writes, in any ordering, to the same device's memory; a flag and data in memory of
	// different devices are not ordered.
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

// access returns the access flag of an MR for the ordering.
func (o Ordering) access() ibvfd.Access {
	if o == StrictOrdering {
		return 0
	}
	return ibvfd.AccessRelaxedOrdering
}
