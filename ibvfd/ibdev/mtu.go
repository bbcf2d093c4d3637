// SPDX-License-Identifier: Apache-2.0

package ibdev

import "math/bits"

// The smallest and the largest value of enum ibv_mtu: 256 and 4096 bytes.
const (
	MTUMin = 1
	MTUMax = 5
)

// MTUBytes returns the bytes of a path MTU of enum ibv_mtu, 0 for a number that the enum does
// not have.
func MTUBytes(enum int) int {
	if enum < MTUMin || enum > MTUMax {
		return 0
	}
	return 128 << enum
}

// MTUEnum returns the largest path MTU of enum ibv_mtu that fits into bytes, 0 if bytes is less
// than 256.
func MTUEnum(bytes int) int {
	return min(max(bits.Len(uint(max(bytes, 0)))-8, 0), MTUMax)
}
