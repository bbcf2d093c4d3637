// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// seedVar sets the seed of every test: to the one that a failed test has printed.
const seedVar = "GPURDMA_TEST_SEED"

// seeded is a random source whose seed a failed test prints.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(seedVar); s != "" {
		seed = must(strconv.ParseUint(s, 0, 64))(t)
	}
	t.Logf("seed %#x: again with %s=%#x", seed, seedVar, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

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

// Ranges, Part, Size, Blocks and Extent agree with the layout written down.
func TestLayoutAgainstModel(t *testing.T) {
	r := seeded(t)
	for i := range 5000 {
		s := shape{sources: 1 + r.IntN(4), room: 1 + r.Int64N(400), blocks: 200}
		l, m := s.layout(t, r, 1+r.IntN(4))
		if got, want := model(slices.Collect(l.Extents())), m.merged(); !slices.Equal(got, want) {
			t.Fatalf("case %d: ranges\n got %v\nwant %v", i, got, want)
		}
		if l.Size() != m.size() {
			t.Fatalf("case %d: size %d, want %d", i, l.Size(), m.size())
		}
		if l.Blocks() < int64(len(m.merged())) || l.Blocks() > int64(len(m)) {
			t.Fatalf("case %d: %d blocks, want %d to %d", i, l.Blocks(), len(m.merged()), len(m))
		}
		off := r.Int64N(l.Size())
		n := 1 + r.Int64N(l.Size()-off)
		got := model(slices.Collect(l.Part(off, n))).bytes()
		if want := m.bytes()[off : off+n]; !slices.Equal(got, want) {
			t.Fatalf("case %d: bytes %d to %d of %v\n got %v\nwant %v", i, off, off+n, m, got, want)
		}
		for src := range s.sources + 1 {
			checkExtent(t, l, m, src)
			some := slices.ContainsFunc(got, func(b Extent) bool { return b.Source == src })
			if i := l.root.source(off, n, func(i int) bool { return i == src }); some != (i == src) || !some && i != -1 {
				t.Fatalf("case %d: bytes %d to %d of %v are of source %d: %v; found %d", i, off, off+n, m, src, some, i)
			}
		}
	}
}

// Of which sources a part is does not take a walk over its blocks, which may be more
// than anybody can walk over.
func TestSourceOfManyBlocks(t *testing.T) {
	const many = 1 << 40
	one := func(source int) Extent { return Extent{Source: source, Len: 1} }
	most := must(Interleaved(one(0), Dim{Count: many}))(t)
	woven := must(RoundRobin(many, Strand{Extent: one(0)}, Strand{Extent: one(1)}))(t)
	l := must(Concat(must(Concat(most, must(SG(one(2)))(t)))(t), woven, most))(t)
	for _, c := range []struct {
		off, n int64
		want   []int
	}{
		{0, many, []int{0}},
		{1, many, []int{0, 2}},
		{many, 1, []int{2}},
		{many + 1, 2, []int{0, 1}},
		{many + 2, 1, []int{1}},
		{many + 2, 2, []int{0, 1}},
		{3 * many, many + 1, []int{0, 1}},
		{3*many + 1, many - 1, []int{0}},
		{0, 4*many + 1, []int{0, 1, 2}},
		{5, 0, nil},
	} {
		for src := range 3 {
			i := l.root.source(c.off, c.n, func(i int) bool { return i == src })
			if found := i == src; found != slices.Contains(c.want, src) {
				t.Errorf("%d bytes from %d: source %d: %v", c.n, c.off, src, found)
			}
		}
	}
}

func checkExtent(t *testing.T, l Layout, m model, src int) {
	t.Helper()
	want, some := bounds{src, math.MaxInt64, 0}, false
	for _, b := range m {
		if b.Source == src {
			want, some = want.with(bounds{src, b.Off, b.Off + b.Len}), true
		}
	}
	got, ok := l.Bounds(src)
	if ok != some || some && got != (Extent{Source: src, Off: want.low, Len: want.high - want.low}) {
		t.Fatalf("extent of source %d: %v %v, want %v of %v", src, got, ok, want, m)
	}
}

// What is encoded decodes to the same, and to the same bytes again.
func TestLayoutWire(t *testing.T) {
	r := seeded(t)
	for range 3000 {
		s := shape{sources: 1 + r.IntN(4), room: 1 + r.Int64N(400), blocks: 100}
		l, _ := s.layout(t, r, 1+r.IntN(4))
		wire, err := l.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back Layout
		if err := back.UnmarshalBinary(wire); err != nil {
			t.Fatalf("%v: %x", err, wire)
		}
		if !slices.Equal(slices.Collect(l.Extents()), slices.Collect(back.Extents())) || back.Blocks() != l.Blocks() {
			t.Fatalf("%x came back as something else", wire)
		}
		again, err := back.MarshalBinary()
		if err != nil || !bytes.Equal(wire, again) {
			t.Fatalf("%x is encoded as %x the second time, %v", wire, again, err)
		}
		// No beginning of it is a layout, and none is longer.
		for cut := 1; cut < len(wire); cut++ {
			if cut > 1 && back.UnmarshalBinary(wire[:cut]) == nil {
				t.Fatalf("the first %d bytes of %x are a layout", cut, wire)
			}
		}
		if err := back.UnmarshalBinary(append(wire, 0)); !errors.Is(err, ErrMalformed) {
			t.Fatalf("a byte too many: %v", err)
		}
	}
	var zero Layout
	wire, err := zero.MarshalBinary()
	if err != nil || zero.UnmarshalBinary(wire) != nil || zero.Size() != 0 || zero.Sources() != 0 {
		t.Errorf("the zero layout: %x, %v", wire, err)
	}
}

// An interleaved layout is short on the wire, whatever it repeats.
func TestInterleavedIsShort(t *testing.T) {
	for _, count := range []int64{10, 1e6, 1 << 40} {
		l, err := Interleaved(Extent{Source: 3, Off: 1 << 40, Len: 1}, Dim{Count: 2, Stride: 1 << 61}, Dim{Count: 3, Stride: 1 << 58}, Dim{Count: 4, Stride: -1}, Dim{Count: 5}, Dim{Count: count, Stride: 3})
		if err != nil {
			t.Fatal(err)
		}
		strands := slices.Repeat([]Strand{{Extent: Extent{Source: 1, Off: 1 << 50, Len: 1 << 10}, Stride: 1 << 12}}, 8)
		woven, err := RoundRobin(count, strands...)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []Layout{l, woven} {
			if wire, err := l.MarshalBinary(); err != nil || len(wire) >= 256 {
				t.Errorf("%d blocks take %d bytes, %v", l.Blocks(), len(wire), err)
			}
		}
	}
}

func TestLayoutsRefused(t *testing.T) {
	const big = math.MaxInt64
	one, err := Contiguous(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	deep, err := SG(Extent{Len: 1}, Extent{Off: 4, Len: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range maxDepth - 1 {
		if deep, err = deep.Repeat(2, 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		make func() (Layout, error)
	}{
		{"no bytes", func() (Layout, error) { return Contiguous(0, 0) }},
		{"negative offset", func() (Layout, error) { return Contiguous(-1, 1) }},
		{"negative length", func() (Layout, error) { return SG(Extent{Off: 5, Len: -1}) }},
		{"end beyond 2^63", func() (Layout, error) { return Contiguous(big, 1) }},
		{"source too high", func() (Layout, error) { return SG(Extent{Source: maxSources, Len: 1}) }},
		{"negative source", func() (Layout, error) { return SG(Extent{Source: -1, Len: 1}) }},
		{"too many bytes", func() (Layout, error) { return SG(Extent{Len: big}, Extent{Source: 1, Len: 1}) }},
		{"too many bytes by repetition", func() (Layout, error) { return Interleaved(Extent{Len: 1 << 40}, Dim{Count: 1 << 40}) }},
		{"no repetition", func() (Layout, error) { return Interleaved(Extent{Len: 1}, Dim{Stride: 8}) }},
		{"negative repetition", func() (Layout, error) { return deep.Repeat(-2, 8) }},
		{"before the start", func() (Layout, error) { return Interleaved(Extent{Off: 9, Len: 1}, Dim{Count: 3, Stride: -5}) }},
		{"beyond the end", func() (Layout, error) { return Interleaved(Extent{Off: 9, Len: 1}, Dim{Count: 3, Stride: big / 2}) }},
		{"stride of -2^63", func() (Layout, error) { return one.Repeat(2, math.MinInt64) }},
		{"too deep", func() (Layout, error) { return deep.Repeat(2, 1) }},
		{"too deep in a list", func() (Layout, error) { return Concat(deep, deep) }},
		{"nothing repeated", func() (Layout, error) { return Layout{}.Repeat(2, 1) }},
		{"strands of nothing", func() (Layout, error) { return RoundRobin(2, Strand{}) }},
		{"no turn", func() (Layout, error) { return RoundRobin(0, Strand{Extent: Extent{Len: 1}}) }},
	} {
		if l, err := c.make(); !errors.Is(err, dmabuf.ErrRange) || l.Size() != 0 {
			t.Errorf("%s: %v, %v", c.name, slices.Collect(l.Part(0, 9)), err)
		}
	}
}

// A decoder that is given anything at all ends soon, with an error or with a
// layout that can be walked over.
func FuzzLayoutUnmarshal(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		l, _ := shape{3, 300, 50}.layout(f, r, 3)
		wire, err := l.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Add([]byte{1, 1, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		var l Layout
		if err := l.UnmarshalBinary(data); err != nil {
			return
		}
		n := min(l.Size(), 1000)
		got := int64(0)
		for r := range l.Part(l.Size()-n, n) {
			if err := r.sound(); err != nil {
				t.Fatal(err)
			}
			if e, ok := l.Bounds(r.Source); !ok || r.Off < e.Off || r.Off+r.Len > e.Off+e.Len {
				t.Fatalf("%v lies outside %v", r, e)
			}
			got += r.Len
		}
		if got != n {
			t.Fatalf("%d bytes of %d", got, n)
		}
		if wire, err := l.MarshalBinary(); err != nil {
			t.Fatalf("%x: %v", wire, err)
		}
	})
}
