// SPDX-License-Identifier: Apache-2.0

package talk

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Pattern is an endless string of bytes that both sides can make: a function of
// the seed and the offset. Flip is the complement, which differs in every byte.
type Pattern struct {
	Seed uint64
	Flip bool
}

// word is 8 bytes of the pattern: the seed and the place, scrambled by steps
// that can be undone, so that no two places of a seed have the same.
func (p Pattern) word(i uint64) uint64 {
	x := (p.Seed ^ i) + 0x9e3779b97f4a7c15*(i+1)
	x = (x ^ x>>31) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>29) * 0x94d049bb133111eb
	x ^= x >> 32
	if p.Flip {
		return ^x
	}
	return x
}

// fill writes the bytes [off, off+len(dst)).
func (p Pattern) fill(dst []byte, off int64) {
	var w [8]byte
	for len(dst) > 0 {
		binary.LittleEndian.PutUint64(w[:], p.word(uint64(off)/8))
		n := copy(dst, w[off%8:])
		dst, off = dst[n:], off+int64(n)
	}
}

// stretch is how much is made, or compared, at a time.
const stretch = 64 << 10

// FillAt writes length bytes of the pattern from off on, each in its place.
func (p Pattern) FillAt(w io.WriterAt, off, length int64) error {
	b := make([]byte, min(length, stretch))
	for length > 0 {
		n := min(length, stretch)
		p.fill(b[:n], off)
		if _, err := w.WriteAt(b[:n], off); err != nil {
			return err
		}
		off, length = off+n, length-n
	}
	return nil
}

// Finding is what a comparison found.
type Finding struct {
	Wrong       int64  // bytes
	First, Last int64  // wrong byte
	Want, Got   []byte // up to 16 bytes from First on
}

// CheckAt compares length bytes from off on with the pattern.
func (p Pattern) CheckAt(r io.ReaderAt, off, length int64) (f Finding, err error) {
	want, got := make([]byte, min(length, stretch)), make([]byte, min(length, stretch))
	for length > 0 {
		n := min(length, stretch)
		p.fill(want[:n], off)
		if read, err := r.ReadAt(got[:n], off); int64(read) < n {
			return f, fmt.Errorf("read %d bytes at %d: %w", n, off, err)
		}
		for i := range want[:n] {
			if want[i] == got[i] {
				continue
			}
			if f.Wrong == 0 {
				end := min(i+sampleSize, int(n))
				f.First = off + int64(i)
				f.Want, f.Got = append(f.Want, want[i:end]...), append(f.Got, got[i:end]...)
			}
			f.Wrong++
			f.Last = off + int64(i)
		}
		off, length = off+n, length-n
	}
	return f, nil
}
