// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/internal/layouttest"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

// A layout that is encoded and decoded is the same, and so is its encoding.
func TestLayoutWire(t *testing.T) {
	r := testenv.Seeded(t)
	for range 3000 {
		s := layouttest.Shape{Sources: 1 + r.IntN(4), Room: 1 + r.Int64N(400), Blocks: 100}
		l, _ := s.Layout(t, r, 1+r.IntN(4))
		wire, err := l.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back layout.Layout
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
		if err := back.UnmarshalBinary(append(wire, 0)); !errors.Is(err, layout.ErrMalformed) {
			t.Fatalf("a byte too many: %v", err)
		}
	}
	var zero layout.Layout
	wire, err := zero.MarshalBinary()
	if err != nil || zero.UnmarshalBinary(wire) != nil || zero.Size() != 0 || zero.Sources() != 0 {
		t.Errorf("the zero layout: %x, %v", wire, err)
	}
}

// An interleaved layout is short on the wire, whatever it repeats.
func TestInterleavedIsShort(t *testing.T) {
	for _, count := range []int64{10, 1e6, 1 << 40} {
		l, err := layout.Interleaved(layout.Extent{Source: 3, Off: 1 << 40, Len: 1}, layout.Dim{Count: 2, Stride: 1 << 61}, layout.Dim{Count: 3, Stride: 1 << 58}, layout.Dim{Count: 4, Stride: -1}, layout.Dim{Count: 5}, layout.Dim{Count: count, Stride: 3})
		if err != nil {
			t.Fatal(err)
		}
		strands := slices.Repeat([]layout.Strand{{Extent: layout.Extent{Source: 1, Off: 1 << 50, Len: 1 << 10}, Stride: 1 << 12}}, 8)
		woven, err := layout.RoundRobin(count, strands...)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []layout.Layout{l, woven} {
			if wire, err := l.MarshalBinary(); err != nil || len(wire) >= 256 {
				t.Errorf("%d blocks take %d bytes, %v", l.Blocks(), len(wire), err)
			}
		}
	}
}

// The wire length of a block table: 10,000 blocks of 16 KiB, of 20,000.
func TestBlockTableOnTheWire(t *testing.T) {
	const block = 16 << 10
	r := testenv.Seeded(t)
	var table []layout.Extent
	for _, i := range r.Perm(20000)[:10000] {
		table = append(table, layout.Extent{Off: int64(i) * block, Len: block})
	}
	wire := must(must(layout.SG(table...))(t).MarshalBinary())(t)
	if len(wire) > 5*len(table)+16 {
		t.Errorf("%d bytes for %d blocks", len(wire), len(table))
	}
}

// A decoder that is given anything at all ends soon, with an error or with a
// layout that can be walked over.
func FuzzLayoutUnmarshal(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		l, _ := layouttest.Shape{Sources: 3, Room: 300, Blocks: 50}.Layout(f, r, 3)
		wire, err := l.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Add([]byte{1, 1, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		var l layout.Layout
		if err := l.UnmarshalBinary(data); err != nil {
			return
		}
		n := min(l.Size(), 1000)
		got := int64(0)
		for r := range l.Part(l.Size()-n, n) {
			e, ok := l.Bounds(r.Source)
			if !ok || e.Off < 0 || e.Len > math.MaxInt64-e.Off || r.Source >= l.Sources() {
				t.Fatalf("bounds of source %d: %v %v", r.Source, e, ok)
			}
			if r.Off < e.Off || r.Len <= 0 || r.Len > e.Len-(r.Off-e.Off) {
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
