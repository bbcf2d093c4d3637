// SPDX-License-Identifier: Apache-2.0

package align

import (
	"fmt"
	"math"
)

// Range is Length bytes of an address space from Addr on. It may reach the last
// address, but not wrap around.
type Range struct{ Addr, Length uint64 }

// last is the address of the last byte. The range must not be empty.
func (r Range) last() uint64 { return r.Addr + (r.Length - 1) }

// valid: not empty, and no wrap around the top.
func (r Range) valid() bool { return r.Length > 0 && r.Length-1 <= math.MaxUint64-r.Addr }

// Contains reports whether all of o is in r.
func (r Range) Contains(o Range) bool {
	return r.valid() && o.valid() && o.Addr >= r.Addr && o.last() <= r.last()
}

// intersect returns what both share; an empty range if nothing.
func (r Range) intersect(o Range) Range {
	from, to := max(r.Addr, o.Addr), min(r.last(), o.last())
	if from > to {
		return Range{Addr: from}
	}
	return Range{from, to - from + 1}
}

// String writes the range as "[0x1000, +0x2000)".
func (r Range) String() string { return fmt.Sprintf("[%#x, +%#x)", r.Addr, r.Length) }

// outward rounds r to multiples of g, a power of two; false where the top of
// the address space is in the way.
func (r Range) outward(g uint64) (Range, bool) {
	from := r.Addr &^ (g - 1)
	to := r.last() | (g - 1)
	if to-from == math.MaxUint64 {
		return Range{}, false
	}
	return Range{from, to - from + 1}, true
}

// roundUp rounds n up to a multiple of g, a power of two; false on overflow.
func roundUp(n, g uint64) (uint64, bool) {
	if n > math.MaxUint64-(g-1) {
		return 0, false
	}
	return (n + g - 1) &^ (g - 1), true
}

func powerOfTwo(n uint64) bool { return n != 0 && n&(n-1) == 0 }
