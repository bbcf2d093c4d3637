// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"math"
	"sort"

	"github.com/gpurdma/gpurdma/layout"
)

// Space is the memory of one source, whose pieces can be looked up by offset.
type Space struct {
	Memory Memory
	ends   []int64 // where each piece ends; nil if there is one
}

// NewSpace keeps m, which must not change any more.
func NewSpace(m Memory) Space {
	s := Space{Memory: m}
	if len(m) > 1 {
		end := int64(0)
		for _, p := range m {
			end += p.Length
			s.ends = append(s.ends, end)
		}
	}
	return s
}

// find is the piece that holds the byte at off, and where in the piece it is.
func (s *Space) find(off int64) (Piece, int64) {
	if len(s.Memory) == 1 {
		return s.Memory[0], off
	}
	return s.search(off)
}

// search is find in several pieces.
func (s *Space) search(off int64) (Piece, int64) {
	i := sort.Search(len(s.ends), func(i int) bool { return s.ends[i] > off })
	return s.Memory[i], off - (s.ends[i] - s.Memory[i].Length)
}

// Bounds returns the lowest address of n bytes from off on, and the one after the highest.
func (s *Space) Bounds(off, n int64) (lo, hi uint64) {
	lo = math.MaxUint64
	for n > 0 {
		p, at := s.find(off)
		some := min(n, p.Length-at)
		lo, hi = min(lo, p.Addr+uint64(at)), max(hi, p.Addr+uint64(at+some))
		off, n = off+some, n-some
	}
	return lo, hi
}

// Window is Len bytes of a layout's run from Off on, in memory.
type Window struct {
	Layout   layout.Layout
	Spaces   []Space // by source
	Off, Len int64
}

// Pieces walks over the memory of windows, one after the other, and merges
// neighbours that one key covers. It allocates nothing.
type Pieces struct {
	list   []Window
	spaces []Space // of the window in use
	walk   layout.Cursor
	walks  bool          // walk has more blocks of the window in use
	block  layout.Extent // the rest of the current block
	ahead  Piece         // found while looking for the end of the one before
}

// mostMerged is how many stretches one piece is merged of at most. A peer may describe any
// number of bytes one by one, and the endpoint waits while Pieces walks over them.
const mostMerged = 1 << 12

// PiecesOf are the pieces of windows, which have been checked: each layout has the bytes,
// and so have the spaces. It changes no window.
func PiecesOf(windows []Window) Pieces { return Pieces{list: windows} }

// Next is the next piece. ok is false after the last.
func (p *Pieces) Next() (_ Piece, ok bool) {
	cur := p.ahead
	p.ahead = Piece{}
	for range mostMerged {
		more, ok := p.raw()
		if !ok {
			return cur, cur.Length > 0
		}
		switch {
		case cur.Length == 0:
			cur = more
		case more.Key == cur.Key && more.Addr == cur.Addr+uint64(cur.Length) && more.Length <= math.MaxInt64-cur.Length:
			cur.Length += more.Length
		default:
			p.ahead = more
			return cur, true
		}
	}
	return cur, true
}

// raw is the next stretch: bytes in a row of one block and of one piece.
func (p *Pieces) raw() (Piece, bool) {
	for p.block.Len == 0 {
		if p.walks {
			if p.block, p.walks = p.walk.Next(); p.walks {
				break
			}
		}
		if len(p.list) == 0 {
			return Piece{}, false
		}
		w := &p.list[0]
		p.list = p.list[1:]
		p.spaces = w.Spaces
		if e, ok := w.Layout.Single(); ok { // most windows; no walk is needed
			p.block = layout.Extent{Source: e.Source, Off: e.Off + w.Off, Len: w.Len}
			continue
		}
		p.walk.Start(w.Layout, w.Off, w.Len)
		p.walks = true
	}
	piece, off := p.spaces[p.block.Source].find(p.block.Off)
	n := min(p.block.Len, piece.Length-off)
	p.block.Off += n
	p.block.Len -= n
	return Piece{Addr: piece.Addr + uint64(off), Length: n, Key: piece.Key}, true
}
