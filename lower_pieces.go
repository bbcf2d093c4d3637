// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"math"
	"sort"
)

// space is memory whose pieces can be looked up.
type space struct {
	pieces Memory
	ends   []int64 // where each piece ends; nil if there is one
}

// newSpace takes the memory over: nobody may change it after.
func newSpace(m Memory) space {
	s := space{pieces: m}
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
func (s *space) find(off int64) (Piece, int64) {
	if len(s.pieces) == 1 {
		return s.pieces[0], off
	}
	return s.search(off)
}

func (s *space) search(off int64) (Piece, int64) {
	i := sort.Search(len(s.ends), func(i int) bool { return s.ends[i] > off })
	return s.pieces[i], off - (s.ends[i] - s.pieces[i].Length)
}

// window is length bytes of a layout's run over memory, from offset on.
type window struct {
	layout         Layout
	mem            []space // by source
	offset, length int64
}

// pieces walks over the memory of windows, one after the other, and merges
// neighbours that one key covers. It allocates nothing.
type pieces struct {
	list  []window
	mem   []space // of the window in use
	walk  cursor
	block Extent // what is left of the current block
	ahead Piece  // found while looking for the end of the one before
}

// mostMerged bounds the stretches of one piece. A peer may have described any number
// of bytes one by one, and an endpoint waits while they are walked over.
const mostMerged = 1 << 12

// piecesOf are the pieces of windows that have been checked. Next changes no window.
func piecesOf(windows []window) pieces { return pieces{list: windows} }

// next is the next piece; false after the last.
func (p *pieces) next() (Piece, bool) {
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

// raw is the next stretch within one block and one piece.
func (p *pieces) raw() (Piece, bool) {
	for p.block.Len == 0 {
		var ok bool
		if p.block, ok = p.walk.next(); ok {
			break
		}
		if len(p.list) == 0 {
			return Piece{}, false
		}
		w := &p.list[0]
		p.list = p.list[1:]
		p.mem = w.mem
		p.walk.start(w.layout, w.offset, w.length)
	}
	piece, off := p.mem[p.block.Source].find(p.block.Off)
	n := min(p.block.Len, piece.Length-off)
	p.block.Off += n
	p.block.Len -= n
	return Piece{Addr: piece.Addr + uint64(off), Length: n, Key: piece.Key}, true
}
