// SPDX-License-Identifier: Apache-2.0

package layouttest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/layout"
)

// Model is a layout written down block by block.
type Model []layout.Extent

// Moved is the model with by added to all offsets.
func (m Model) Moved(by int64) Model {
	out := slices.Clone(m)
	for i := range out {
		out[i].Off += by
	}
	return out
}

// Size is how many bytes the model has.
func (m Model) Size() (n int64) {
	for _, r := range m {
		n += r.Len
	}
	return n
}

// Bytes are the positions that the layout takes, one by one.
func (m Model) Bytes() (out []layout.Extent) {
	for _, r := range m {
		for i := range r.Len {
			out = append(out, layout.Extent{Source: r.Source, Off: r.Off + i, Len: 1})
		}
	}
	return out
}

// Merged joins neighbours.
func (m Model) Merged() (out Model) {
	for _, r := range m {
		if n := len(out); n > 0 && out[n-1].Source == r.Source && out[n-1].Off+out[n-1].Len == r.Off {
			out[n-1].Len += r.Len
			continue
		}
		out = append(out, r)
	}
	return out
}

// Shape is what random layouts are made for.
type Shape struct {
	Sources int
	Room    int64 // bytes of each source
	Blocks  int   // at most about so many
}

func (s Shape) block(r *rand.Rand) layout.Extent {
	n := 1 + r.Int64N(min(s.Room, 24))
	return layout.Extent{Source: r.IntN(s.Sources), Off: r.Int64N(s.Room - n + 1), Len: n}
}

// Layout makes a layout and its model from the same random choices; the model
// knows nothing of nodes.
func (s Shape) Layout(t testing.TB, r *rand.Rand, depth int) (layout.Layout, Model) {
	kind := r.IntN(5)
	if depth <= 1 {
		kind = r.IntN(3)
	}
	var l layout.Layout
	var m Model
	var err error
	switch kind {
	case 0:
		for range 1 + r.IntN(6) {
			b := s.block(r)
			if n := len(m); n > 0 && r.IntN(3) == 0 && m[n-1].Off+m[n-1].Len+b.Len <= s.Room {
				b.Source, b.Off = m[n-1].Source, m[n-1].Off+m[n-1].Len // a neighbour
			}
			m = append(m, b)
		}
		l, err = layout.SG(m...)
	case 1:
		b := s.block(r)
		m = Model{b}
		var dims []layout.Dim
		for range r.IntN(4) {
			d := s.dim(r, m, b.Len)
			dims = append([]layout.Dim{d}, dims...)
			m = m.repeat(d)
		}
		l, err = layout.Interleaved(b, dims...)
	case 2:
		count := 1 + r.Int64N(5)
		var strands []layout.Strand
		for range 1 + r.IntN(3) {
			b := s.block(r)
			strands = append(strands, layout.Strand{Extent: b, Stride: s.dimOf(r, Model{b}, b.Len, count).Stride})
		}
		for i := range count {
			for _, st := range strands {
				m = append(m, Model{st.Extent}.Moved(i*st.Stride)...)
			}
		}
		l, err = layout.RoundRobin(count, strands...)
	case 3:
		l, m = s.Layout(t, r, depth-1)
		d := s.dim(r, m, l.Size())
		m = m.repeat(d)
		l, err = l.Repeat(d.Count, d.Stride)
	case 4:
		var parts []layout.Layout
		for range r.IntN(3) + 1 {
			pl, pm := s.Layout(t, r, depth-1)
			parts, m = append(parts, pl), append(m, pm...)
		}
		l, err = layout.Concat(parts...)
	}
	if err != nil {
		t.Fatalf("%v\n%v", err, m)
	}
	return l, m
}

func (m Model) repeat(d layout.Dim) (out Model) {
	for i := range d.Count {
		out = append(out, m.Moved(i*d.Stride)...)
	}
	return out
}

// dim chooses a repetition that keeps m within its sources.
func (s Shape) dim(r *rand.Rand, m Model, block int64) layout.Dim {
	count := 1 + r.Int64N(4)
	if int(count)*len(m) > s.Blocks {
		count = 1
	}
	return s.dimOf(r, m, block, count)
}

func (s Shape) dimOf(r *rand.Rand, m Model, block, count int64) layout.Dim {
	low, high := s.Room, int64(0)
	for _, b := range m {
		low, high = min(low, b.Off), max(high, b.Off+b.Len)
	}
	if count == 1 {
		return layout.Dim{Count: 1, Stride: r.Int64() - r.Int64()}
	}
	up, down := (s.Room-high)/(count-1), low/(count-1)
	if r.IntN(3) == 0 && block <= up {
		return layout.Dim{Count: count, Stride: block}
	}
	return layout.Dim{Count: count, Stride: r.Int64N(up+down+1) - down}
}

// Memory makes sources of one or more pieces. Keys are few, so that pieces of
// one key come to lie side by side.
func (s Shape) Memory(r *rand.Rand) (out []lower.Memory) {
	for range s.Sources {
		var m lower.Memory
		addr := r.Uint64N(1 << 40)
		for left := s.Room; left > 0; {
			n := left
			if r.IntN(2) == 0 {
				n = 1 + r.Int64N(left)
			}
			m = append(m, lower.Piece{Addr: addr, Length: n, Key: uint32(1 + r.IntN(3))})
			addr += uint64(n)
			if r.IntN(2) == 0 {
				addr += r.Uint64N(100)
			}
			left -= n
		}
		out = append(out, m)
	}
	return out
}
