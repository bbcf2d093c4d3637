// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"encoding/binary"
	"math/bits"
)

// blockSize is the unit of a pattern: a scrambled offset and a check word.
// A stretch of 2*blockSize-1 bytes holds at least one whole block.
const blockSize = 16

// pattern is an endless string of bytes, a function of seed and generation.
// Block k says, scrambled, that it belongs at offset k*blockSize; the check
// word tells a block of this pattern from anything else.
type pattern struct {
	key, check uint64
	flip       uint64 // all ones: the complement
}

func newPattern(seed uint64, generation int) pattern {
	key := mix(seed ^ mix(uint64(generation)+1))
	return pattern{key: key, check: mix(key)}
}

// complement differs from p in every bit.
func (p pattern) complement() pattern {
	p.flip = ^p.flip
	return p
}

func (p pattern) block(dst []byte, off int64) {
	a := mix(uint64(off) + p.key)
	binary.LittleEndian.PutUint64(dst, a^p.flip)
	binary.LittleEndian.PutUint64(dst[8:blockSize], mix(a^p.check)^p.flip)
}

// fill writes the pattern's bytes [off, off+len(dst)) into dst.
func (p pattern) fill(dst []byte, off int64) {
	if head := off % blockSize; head != 0 {
		var b [blockSize]byte
		p.block(b[:], off-head)
		n := copy(dst, b[head:])
		dst, off = dst[n:], off+int64(n)
	}
	for len(dst) >= blockSize {
		p.block(dst, off)
		dst, off = dst[blockSize:], off+blockSize
	}
	if len(dst) > 0 {
		var b [blockSize]byte
		p.block(b[:], off)
		copy(dst, b[:])
	}
}

// locate finds the offset that the first byte of b was made for, if b holds a
// whole block of this pattern at any alignment.
func (p pattern) locate(b []byte) (off int64, ok bool) {
	for i := 0; i < blockSize && i+blockSize <= len(b); i++ {
		a := binary.LittleEndian.Uint64(b[i:]) ^ p.flip
		if mix(a^p.check) != binary.LittleEndian.Uint64(b[i+8:])^p.flip {
			continue
		}
		if at := int64(unmix(a) - p.key); at >= 0 && at%blockSize == 0 {
			return at - int64(i), true
		}
	}
	return 0, false
}

// mix is an invertible scramble of 64 bits: xorshifts and odd multipliers,
// each step a bijection.
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= mixFactor
	x ^= x >> 29
	x *= mixFactor
	return x ^ x>>32
}

func unmix(x uint64) uint64 {
	x ^= x >> 32
	x *= unmixFactor
	x ^= x>>29 ^ x>>58
	x *= unmixFactor
	return x ^ x>>32
}

const mixFactor = 0xd1b54a32d192ed03

var unmixFactor = inverse(mixFactor)

// inverse is the odd number's inverse modulo 2^64, by Newton's iteration:
// each step doubles the number of right bits.
func inverse(odd uint64) uint64 {
	x := odd
	for range bits.Len(64) {
		x *= 2 - odd*x
	}
	return x
}
