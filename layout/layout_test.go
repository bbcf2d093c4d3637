// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"math"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/internal/layouttest"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Extents, Part, Size, Blocks, Bounds and sources agree with the layout written down.
func TestLayoutAgainstModel(t *testing.T) {
	r := testenv.Seeded(t)
	for i := range 5000 {
		s := layouttest.Shape{Sources: 1 + r.IntN(4), Room: 1 + r.Int64N(400), Blocks: 200}
		l, m := s.Layout(t, r, 1+r.IntN(4))
		if got, want := layouttest.Model(slices.Collect(l.Extents())), m.Merged(); !slices.Equal(got, want) {
			t.Fatalf("case %d: extents\n got %v\nwant %v", i, got, want)
		}
		if l.Size() != m.Size() {
			t.Fatalf("case %d: size %d, want %d", i, l.Size(), m.Size())
		}
		if l.Blocks() < int64(len(m.Merged())) || l.Blocks() > int64(len(m)) {
			t.Fatalf("case %d: %d blocks, want %d to %d", i, l.Blocks(), len(m.Merged()), len(m))
		}
		if e, ok := l.Single(); ok != (l.Blocks() == 1) || ok && !slices.Equal(m.Merged(), layouttest.Model{e}) {
			t.Fatalf("case %d: %v as a single extent: %v, %v", i, m, e, ok)
		}
		off := r.Int64N(l.Size())
		n := 1 + r.Int64N(l.Size()-off)
		got := layouttest.Model(slices.Collect(l.Part(off, n))).Bytes()
		if want := m.Bytes()[off : off+n]; !slices.Equal(got, want) {
			t.Fatalf("case %d: bytes %d to %d of %v\n got %v\nwant %v", i, off, off+n, m, got, want)
		}
		distinct := map[int]bool{}
		for _, b := range m {
			distinct[b.Source] = true
		}
		if l.DistinctSources() != len(distinct) {
			t.Fatalf("case %d: %d sources, want %d of %v", i, l.DistinctSources(), len(distinct), m)
		}
		for src := range s.Sources + 1 {
			checkBounds(t, l, m, src)
			some := slices.ContainsFunc(got, func(b layout.Extent) bool { return b.Source == src })
			if found, ok := l.FindSource(off, n, func(i int) bool { return i == src }); ok != some || ok && found != src {
				t.Fatalf("case %d: bytes %d to %d of %v are of source %d: %v; found %d, %v", i, off, off+n, m, src, some, found, ok)
			}
		}
	}
}

// Of which sources a part is does not take a walk over its blocks, which may be too many
// to walk over.
func TestSourceOfManyBlocks(t *testing.T) {
	const many = 1 << 40
	one := func(source int) layout.Extent { return layout.Extent{Source: source, Len: 1} }
	most := must(layout.Interleaved(one(0), layout.Dim{Count: many}))(t)
	woven := must(layout.RoundRobin(many, layout.Strand{Extent: one(0)}, layout.Strand{Extent: one(1)}))(t)
	l := must(layout.Concat(must(layout.Concat(most, must(layout.SG(one(2)))(t)))(t), woven, most))(t)
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
			i, found := l.FindSource(c.off, c.n, func(i int) bool { return i == src })
			if found != slices.Contains(c.want, src) || found && i != src {
				t.Errorf("%d bytes from %d: source %d: %d, %v", c.n, c.off, src, i, found)
			}
		}
	}
}

func checkBounds(t *testing.T, l layout.Layout, m layouttest.Model, src int) {
	t.Helper()
	low, high, some := int64(math.MaxInt64), int64(0), false
	for _, b := range m {
		if b.Source == src {
			low, high, some = min(low, b.Off), max(high, b.Off+b.Len), true
		}
	}
	got, ok := l.Bounds(src)
	if ok != some || some && got != (layout.Extent{Source: src, Off: low, Len: high - low}) {
		t.Fatalf("bounds of source %d: %v %v, want %d to %d of %v", src, got, ok, low, high, m)
	}
}
