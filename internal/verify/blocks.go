// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
	"math/rand/v2"
)

// Mode says which blocks of an operation are summed.
type Mode uint8

// The modes.
const (
	None Mode = iota
	Sampled
	All
)

// leastShift is the logarithm of the size of the smallest blocks: 64 KiB.
const leastShift = 16

// mostShift is that of the largest ones.
const mostShift = 62

// share is the number of blocks of which Sampled chooses one, on average.
const share = 100

// Source is bytes that are summed.
type Source interface {
	// Each calls f with the n bytes from off on, in order, in parts. f must not keep them.
	Each(off, n int64, f func(p []byte)) error
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf returns the CRC32C of n bytes from off on.
func sumOf(src Source, off, n int64) (sum uint32, err error) {
	err = src.Each(off, n, func(p []byte) { sum = crc32.Update(sum, castagnoli, p) })
	return sum, err
}

// blocks returns the number of blocks of 1<<shift bytes in total bytes. The last may be shorter.
func blocks(total int64, shift uint) int64 {
	n := total >> shift
	if n<<shift < total {
		n++
	}
	return n
}

// block returns where block i is.
func block(total int64, shift uint, i int64) (off, n int64) {
	off = i << shift
	return off, min(1<<shift, total-off)
}

// shiftOfAll returns the logarithm of the size of the smallest blocks whose sums fit into room bytes.
func shiftOfAll(total int64, room int) uint {
	shift := uint(leastShift)
	for blocks(total, shift) > int64(room/sumSize) {
		shift++
	}
	return shift
}

// Choice is the blocks of an operation that were chosen at random.
type Choice struct {
	total int64
	shift uint
	list  []int64
}

// None reports whether no block was chosen.
func (c *Choice) None() bool { return len(c.list) == 0 }

// ChooseOne chooses blocks of an operation of total bytes, which has one piece, without a layout of its
// own.
func ChooseOne(total int64) Choice { return choose(total, Room-mostOfOne) }

// mostOfOne is the most bytes of a trailer before its sums, if it has one piece without a layout.
const mostOfOne = 2 + 1 + leastPiece - 2 + 2*binary.MaxVarintLen64

// choose chooses blocks at random. Their numbers and sums fit into room bytes.
func choose(total int64, room int) Choice {
	var list []int64
	for shift := uint(leastShift); ; shift++ {
		n := blocks(total, shift)
		most := mostChosen(n, room)
		mean := float64(n) / share
		// Of 30,000 draws one has more blocks than this. If they had no room, larger blocks are tried.
		if n > int64(most) && mean+4*math.Sqrt(mean) > float64(most) {
			continue
		}
		list = draw(n, list[:0])
		if len(list) <= most {
			return Choice{total, shift, list}
		}
	}
}

// leftOut is the logarithm of the probability that a block is not drawn.
var leftOut = math.Log(1 - 1.0/share)

// draw draws each of n blocks with the probability 1/share.
func draw(n int64, list []int64) []int64 {
	for i := int64(-1); ; {
		// The number of blocks that are left out before the next one has a geometric distribution.
		skip := math.Floor(math.Log(1-rand.Float64()) / leftOut)
		if skip >= float64(n-1-i) {
			return list
		}
		i += 1 + int64(skip)
		list = append(list, i)
	}
}

// mostChosen returns how many of n blocks fit into room bytes, with their numbers and sums.
func mostChosen(n int64, room int) int {
	one := sumSize + uvarintSize(uint64(n))
	return max((room-countSize)/one, 0)
}

// uvarintSize returns the number of bytes of a number in a trailer.
func uvarintSize(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }
