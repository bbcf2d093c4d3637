// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/wire"
	"github.com/gpurdma/gpurdma/layout"
	"golang.org/x/sys/unix"
)

// Room is the number of bytes that a trailer may have: with its length 512 bytes of a message.
const Room = 510

// Sizes in a trailer, in bytes: of a sum, of the number of chosen blocks, and the least that must be
// left for sums after the pieces.
const (
	sumSize   = 4
	countSize = 2
	leastSums = 16
)

// Piece is memory of the receiver: the bytes of an operation are written to its pieces, in order.
type Piece struct {
	Memory   uint64        // its ID
	Own      bool          // it is seen through Layout, not through the layout that it was exported with
	Layout   layout.Layout // with Own
	Off, Len int64         // in the bytes of the layout

	Size int64 // bytes of the memory, as far as the sender knows; it is not part of a trailer
}

// Sum is the sum of a block.
type Sum struct {
	Off, Len int64 // in the operation
	Value    uint32
}

// Trailer describes the bytes of a write: where they are written to, and their sums.
type Trailer struct {
	Pieces []Piece
	Total  int64 // bytes of the operation
	Sums   []Sum // in order
}

// A trailer on the wire is: the mode, the logarithm of the size of blocks, the number of pieces; for
// each its ID, 1 if a layout follows and otherwise 0, the length of the layout and the layout, offset
// and length; then for All the sums of all blocks, and for Sampled the number of sums, and for each
// the number of blocks that were left out before it, and the sum. Numbers are uvarints, IDs and sums
// are big-endian.

// Make returns the trailer of an operation of total bytes, which it reads from src. It is nil if no
// block was chosen.
func Make(mode Mode, what string, pieces []Piece, total int64, src Source) ([]byte, error) {
	b, err := appendPieces([]byte{byte(mode), 0}, what, pieces)
	if err != nil || total == 0 {
		return nil, err
	}
	room := Room - len(b)
	if mode == All {
		shift := shiftOfAll(total, room)
		b[1] = byte(shift)
		for i := range blocks(total, shift) {
			off, n := block(total, shift, i)
			sum, err := sumOf(src, off, n)
			if err != nil {
				return nil, err
			}
			b = binary.BigEndian.AppendUint32(b, sum)
		}
		return b, nil
	}
	c := choose(total, room)
	return c.append(b, src)
}

// Make returns the trailer of an operation whose blocks were chosen. It is nil if none was.
func (c *Choice) Make(what string, pieces []Piece, src Source) ([]byte, error) {
	b, err := appendPieces([]byte{byte(Sampled), 0}, what, pieces)
	if err != nil {
		return nil, err
	}
	return c.append(b, src)
}

// append appends the sums of the blocks that were chosen to the pieces.
func (c *Choice) append(b []byte, src Source) ([]byte, error) {
	if c.None() {
		return nil, nil
	}
	b[1] = byte(c.shift)
	b = binary.AppendUvarint(b, uint64(len(c.list)))
	next := int64(0)
	for _, i := range c.list {
		off, n := block(c.total, c.shift, i)
		sum, err := sumOf(src, off, n)
		if err != nil {
			return nil, err
		}
		b = binary.AppendUvarint(b, uint64(i-next))
		b = binary.BigEndian.AppendUint32(b, sum)
		next = i + 1
	}
	return b, nil
}

// appendPieces appends the pieces of an operation, and refuses those that cannot be checked.
func appendPieces(b []byte, what string, pieces []Piece) ([]byte, error) {
	refuse := func(detail, remedy string, err error) ([]byte, error) {
		return nil, &failure.Error{Op: what, Detail: detail, Remedy: remedy, Err: err}
	}
	pieces = joined(pieces)
	if m, twice := repeated(pieces, func(p *Piece) int64 { return p.Size }); twice {
		return refuse(fmt.Sprintf("Config.Verify, and %d bytes to memory of the peer that has %d: some are written twice", m.Len, m.Size), "write each byte once, or use a connection without Verify", unix.EINVAL)
	}
	b = binary.AppendUvarint(b, uint64(len(pieces)))
	for i := range pieces {
		p := &pieces[i]
		b = binary.BigEndian.AppendUint64(b, p.Memory)
		if p.Own {
			shape, err := p.Layout.MarshalBinary()
			if err != nil {
				return nil, err
			}
			b = binary.AppendUvarint(append(b, 1), uint64(len(shape)))
			b = append(b, shape...)
		} else {
			b = append(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(p.Off))
		b = binary.AppendUvarint(b, uint64(p.Len))
	}
	if most := Room - leastSums; len(b) > most {
		return refuse(fmt.Sprintf("Config.Verify, and a destination that takes %d bytes to describe; %d fit into a notification", len(b), most), "write to fewer pieces of memory or through a shorter layout, or use a connection without Verify", failure.ErrLimit)
	}
	return b, nil
}

// joined returns the pieces. It joins those of which one continues the other.
func joined(pieces []Piece) (list []Piece) {
	for _, p := range pieces {
		if n := len(list); n > 0 {
			if last := &list[n-1]; !p.Own && !last.Own && p.Memory == last.Memory && p.Off == last.Off+last.Len {
				last.Len += p.Len
				continue
			}
		}
		list = append(list, p)
	}
	return list
}

// repeated finds memory whose pieces together have more bytes than the memory: some bytes are named
// twice. It returns these pieces as one.
func repeated(pieces []Piece, size func(*Piece) int64) (m Piece, twice bool) {
	for i := range pieces {
		m = Piece{Memory: pieces[i].Memory, Size: size(&pieces[i])}
		for k := range pieces {
			if pieces[k].Memory != m.Memory {
				continue
			}
			if m.Len += pieces[k].Len; m.Len > m.Size {
				return m, true
			}
		}
	}
	return Piece{}, false
}

// Decode decodes the trailer of a peer, and checks all of it that can be checked without the memory.
func Decode(data []byte) (*Trailer, error) {
	r := wire.NewReader("trailer of sums", data)
	if len(data) > Room {
		return nil, r.Fail("%d bytes, of at most %d", len(data), Room)
	}
	t := &Trailer{}
	mode, shift := Mode(r.Byte()), uint(r.Byte())
	if r.Err == nil && (mode != Sampled && mode != All || shift < leastShift || shift > mostShift) {
		return nil, r.Fail("mode %d, blocks of 2^%d bytes", mode, shift)
	}
	t.Pieces = make([]Piece, r.Count(leastPiece))
	for i := range t.Pieces {
		t.Pieces[i].decode(&r)
		if r.Err != nil {
			return nil, r.Err
		}
		if t.Pieces[i].Len > math.MaxInt64-t.Total {
			return nil, r.Fail("more than 2^63 bytes")
		}
		t.Total += t.Pieces[i].Len
	}
	if mode == All {
		t.all(&r, shift)
	} else {
		t.sampled(&r, shift)
	}
	if r.Err == nil && len(t.Sums) == 0 {
		return nil, r.Fail("no sums")
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return t, nil
}

// leastPiece is the length of the shortest piece.
const leastPiece = 8 + 1 + 1 + 1

func (p *Piece) decode(r *wire.Reader) {
	p.Memory = r.Uint64()
	switch own := r.Byte(); own {
	case 0:
	case 1:
		shape := r.Take(r.Count(1))
		if r.Err != nil {
			return
		}
		if err := p.Layout.UnmarshalBinary(shape); err != nil {
			r.Fail("%v", err)
			return
		}
		p.Own = true
	default:
		r.Fail("a layout of kind %d", own)
	}
	p.Off, p.Len = r.Int64(), r.Int64()
	if r.Err == nil && (p.Len == 0 || p.Own && (p.Off > p.Layout.Size() || p.Len > p.Layout.Size()-p.Off)) {
		r.Fail("%d bytes at %d, of %d", p.Len, p.Off, p.Layout.Size())
	}
}

// all reads the sums of all blocks.
func (t *Trailer) all(r *wire.Reader, shift uint) {
	n := blocks(t.Total, shift)
	if r.Err != nil || !r.Fits(uint64(n), sumSize) {
		return
	}
	t.Sums = make([]Sum, n)
	for i := range t.Sums {
		x := &t.Sums[i]
		x.Off, x.Len = block(t.Total, shift, int64(i))
		x.Value = r.Uint32()
	}
}

// sampled reads the sums of some blocks.
func (t *Trailer) sampled(r *wire.Reader, shift uint) {
	t.Sums = make([]Sum, r.Count(1+sumSize))
	left := blocks(t.Total, shift) // from the next one on
	next := int64(0)
	for i := range t.Sums {
		skip := r.Int64()
		if r.Err == nil && skip >= left {
			r.Fail("block %d of %d", next+skip, next+left)
		}
		if r.Err != nil {
			return
		}
		x := &t.Sums[i]
		x.Off, x.Len = block(t.Total, shift, next+skip)
		x.Value = r.Uint32()
		next, left = next+skip+1, left-skip-1
	}
}
