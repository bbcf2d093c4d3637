// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"
)

// Corrupt is the error of a write whose bytes in the memory are not those that the peer has sent.
type Corrupt struct {
	Memory      string // its name; empty if it was shared without a name
	Off         int64  // of the first block that differs, in the operation
	At          int64  // where the block begins in the memory, in the order of its layout
	Len         int64  // bytes of the block
	Sent, Found uint32 // its sums
	Blocks      int    // blocks of the operation that differ
	Checked     int    // blocks of the operation that were compared
}

// Error returns all fields in one sentence.
func (c *Corrupt) Error() string {
	memory := "memory without a name"
	if c.Memory != "" {
		memory = fmt.Sprintf("memory %q", c.Memory)
	}
	return fmt.Sprintf("%d bytes at %d of the peer's write, at %d of %s, have CRC32C 0x%08x, and the peer has sent 0x%08x (%d of %d blocks differ, each read twice); let the peer write them again, and if no program changes them before the notification is taken, test the memory, the NICs and the path between them",
		c.Len, c.Off, c.At, memory, c.Found, c.Sent, c.Blocks, c.Checked)
}

// ErrUnverified means that the bytes could not be compared.
var ErrUnverified = errors.New("the bytes of the write could not be compared with the peer's sums")

// Finding is a block whose sum differs.
type Finding struct {
	Sum
	Found uint32
}

// Compare compares the blocks with the memory. It flushes first. Blocks that differ are flushed and
// read once more.
func (t *Trailer) Compare(src Source, flush func() error) (bad []Finding, err error) {
	sums := t.Sums
	for range 2 {
		if err := flush(); err != nil {
			return nil, err
		}
		bad = bad[:0:0]
		for _, x := range sums {
			found, err := sumOf(src, x.Off, x.Len)
			if err != nil {
				return nil, err
			}
			if found != x.Value {
				bad = append(bad, Finding{x, found})
			}
		}
		if len(bad) == 0 {
			return nil, nil
		}
		sums = make([]Sum, len(bad))
		for i := range bad {
			sums[i] = bad[i].Sum
		}
	}
	return bad, nil
}

// Piece returns the piece that has byte off of the operation, and where in its memory the byte is.
func (t *Trailer) Piece(off int64) (p *Piece, at int64) {
	for i := range t.Pieces {
		p = &t.Pieces[i]
		if off < p.Len {
			return p, p.Off + off
		}
		off -= p.Len
	}
	return nil, 0
}

// Repeats reports whether the pieces of some memory have more bytes than the memory. Then bytes are
// named twice, and such a trailer could make the receiver read without end.
func (t *Trailer) Repeats(size func(memory uint64) int64) bool {
	_, twice := repeated(t.Pieces, func(p *Piece) int64 { return size(p.Memory) })
	return twice
}

// Joined is the bytes of several sources, one source after the other.
type Joined []Part

// Part is the first Len bytes of a source.
type Part struct {
	Source
	Len int64
}

// Each calls f with n bytes from off on.
func (j Joined) Each(off, n int64, f func(p []byte)) error {
	for _, p := range j {
		if n == 0 {
			break
		}
		if off >= p.Len {
			off -= p.Len
			continue
		}
		k := min(n, p.Len-off)
		if err := p.Source.Each(off, k, f); err != nil {
			return err
		}
		off, n = 0, n-k
	}
	return nil
}
