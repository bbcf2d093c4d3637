// SPDX-License-Identifier: Apache-2.0

package ibvfd

// SGE is one piece of local memory.
type SGE struct {
	Addr   uint64 // address within the MR, counted from its IOVA
	Length uint32 // bytes
	LKey   uint32
}
