// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// model is a layout written down block by block.
type model []Extent

func (m model) moved(by int64) model {
	out := slices.Clone(m)
	for i := range out {
		out[i].Off += by
	}
	return out
}

func (m model) size() (n int64) {
	for _, r := range m {
		n += r.Len
	}
	return n
}

// bytes are the positions that the layout takes, one by one.
func (m model) bytes() (out []Extent) {
	for _, r := range m {
		for i := range r.Len {
			out = append(out, Extent{Source: r.Source, Off: r.Off + i, Len: 1})
		}
	}
	return out
}

// merged joins neighbours.
func (m model) merged() (out model) {
	for _, r := range m {
		if n := len(out); n > 0 && out[n-1].Source == r.Source && out[n-1].Off+out[n-1].Len == r.Off {
			out[n-1].Len += r.Len
			continue
		}
		out = append(out, r)
	}
	return out
}

// shape is what random layouts are made for.
type shape struct {
	sources int
	room    int64 // bytes of each source
	blocks  int   // at most about so many
}

func (s shape) block(r *rand.Rand) Extent {
	n := 1 + r.Int64N(min(s.room, 24))
	return Extent{Source: r.IntN(s.sources), Off: r.Int64N(s.room - n + 1), Len: n}
}

// layout makes a layout and its model from the same random choices; the model
// knows nothing of nodes.
func (s shape) layout(t testing.TB, r *rand.Rand, depth int) (Layout, model) {
	kind := r.IntN(5)
	if depth <= 1 {
		kind = r.IntN(3)
	}
	var l Layout
	var m model
	var err error
	switch kind {
	case 0:
		for range 1 + r.IntN(6) {
			b := s.block(r)
			if n := len(m); n > 0 && r.IntN(3) == 0 && m[n-1].Off+m[n-1].Len+b.Len <= s.room {
				b.Source, b.Off = m[n-1].Source, m[n-1].Off+m[n-1].Len // a neighbour
			}
			m = append(m, b)
		}
		l, err = SG(m...)
	case 1:
		b := s.block(r)
		m = model{b}
		var dims []Dim
		for range r.IntN(4) {
			d := s.dim(r, m, b.Len)
			dims = append([]Dim{d}, dims...)
			m = m.repeat(d)
		}
		l, err = Interleaved(b, dims...)
	case 2:
		count := 1 + r.Int64N(5)
		var strands []Strand
		for range 1 + r.IntN(3) {
			b := s.block(r)
			strands = append(strands, Strand{Extent: b, Stride: s.dimOf(r, model{b}, b.Len, count).Stride})
		}
		for i := range count {
			for _, st := range strands {
				m = append(m, model{st.Extent}.moved(i*st.Stride)...)
			}
		}
		l, err = RoundRobin(count, strands...)
	case 3:
		l, m = s.layout(t, r, depth-1)
		d := s.dim(r, m, l.Size())
		m = m.repeat(d)
		l, err = l.Repeat(d.Count, d.Stride)
	case 4:
		var parts []Layout
		for range r.IntN(3) + 1 {
			pl, pm := s.layout(t, r, depth-1)
			parts, m = append(parts, pl), append(m, pm...)
		}
		l, err = Concat(parts...)
	}
	if err != nil {
		t.Fatalf("%v\n%v", err, m)
	}
	return l, m
}

func (m model) repeat(d Dim) (out model) {
	for i := range d.Count {
		out = append(out, m.moved(i*d.Stride)...)
	}
	return out
}

// dim chooses a repetition that keeps m within its sources.
func (s shape) dim(r *rand.Rand, m model, block int64) Dim {
	count := 1 + r.Int64N(4)
	if int(count)*len(m) > s.blocks {
		count = 1
	}
	return s.dimOf(r, m, block, count)
}

func (s shape) dimOf(r *rand.Rand, m model, block, count int64) Dim {
	low, high := s.room, int64(0)
	for _, b := range m {
		low, high = min(low, b.Off), max(high, b.Off+b.Len)
	}
	if count == 1 {
		return Dim{Count: 1, Stride: r.Int64() - r.Int64()}
	}
	up, down := (s.room-high)/(count-1), low/(count-1)
	if r.IntN(3) == 0 && block <= up {
		return Dim{Count: count, Stride: block}
	}
	return Dim{Count: count, Stride: r.Int64N(up+down+1) - down}
}

// memory makes sources of one or more pieces. Keys are few, so that pieces of
// one key come to lie side by side.
func (s shape) memory(r *rand.Rand) (out []Memory) {
	for range s.sources {
		var m Memory
		addr := r.Uint64N(1 << 40)
		for left := s.room; left > 0; {
			n := left
			if r.IntN(2) == 0 {
				n = 1 + r.Int64N(left)
			}
			m = append(m, Piece{Addr: addr, Length: n, Key: uint32(1 + r.IntN(3))})
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
