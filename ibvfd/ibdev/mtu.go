// SPDX-License-Identifier: Apache-2.0

package ibdev

import "math/bits"

// MTUBytes turns enum ibv_mtu (1 is 256, 5 is the largest) into bytes; 0 if it
// is no MTU. [MTUEnum] is its inverse, rounding down.
func MTUBytes(enum int) int {
	if enum < MTUMin || enum > MTUMax {
		return 0
	}
	return 128 << enum
}

// MTUEnum is the largest enum ibv_mtu of at most so many bytes; 0 if there is none.
func MTUEnum(bytes int) int {
	return min(max(bits.Len(uint(bytes))-8, 0), MTUMax)
}

// The least and the greatest enum ibv_mtu: 256 and 4096 bytes.
const (
	MTUMin = 1
	MTUMax = 5
)
