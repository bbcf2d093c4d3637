// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"math/rand/v2"
	"testing"
)

func TestStride(t *testing.T) {
	block := Extent{Source: 3, Off: 100, Len: 8}
	list, _ := SG(block, Extent{Source: 3, Off: 200, Len: 8})
	two, _ := RoundRobin(4, Strand{Extent: block, Stride: 64}, Strand{Extent: Extent{Source: 3, Off: 116, Len: 8}, Stride: 64})
	weave := func(dims ...Dim) Layout {
		l, err := Interleaved(block, dims...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, c := range []struct {
		name   string
		l      Layout
		block  Extent
		stride int64
	}{
		{"nothing", Layout{}, Extent{}, 0},
		{"one block", weave(), Extent{}, 0},
		{"a list", list, Extent{}, 0},
		{"two blocks in turn", two, Extent{}, 0},
		{"one dimension", weave(Dim{5, 64}), block, 64},
		{"backwards", weave(Dim{2, -50}), Extent{3, 50, 8}, 50},
		{"two dimensions", weave(Dim{3, 1000}, Dim{5, 64}), block, 8},
		{"two dimensions that share a divisor", weave(Dim{3, 960}, Dim{5, 64}), block, 64},
		{"two dimensions, of which one is backwards", weave(Dim{2, -48}, Dim{3, 32}), Extent{3, 52, 8}, 16},
		{"blocks that overlap", weave(Dim{3, 6}), Extent{}, 0},
		{"the same block again", weave(Dim{3, 0}), Extent{}, 0},
		{"neighbours", weave(Dim{3, 8}), Extent{}, 0},
	} {
		block, stride, ok := c.l.Stride()
		if block != c.block || stride != c.stride || ok != (stride > 0) {
			t.Errorf("%s: %+v, %d, %v; want %+v, %d", c.name, block, stride, ok, c.block, c.stride)
		}
	}
}

// Every byte of a layout that has a stride lies in a block at a multiple of the stride.
func TestStrideHoldsAllBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 2000 {
		l, err := Interleaved(Extent{Off: 10_000, Len: 1 + r.Int64N(20)})
		for range 1 + r.IntN(3) {
			if err == nil {
				l, err = l.Repeat(1+r.Int64N(5), r.Int64N(600)-300)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		block, stride, ok := l.Stride()
		if !ok {
			continue
		}
		found++
		for x := range l.Extents() {
			if at := x.Off - block.Off; at < 0 || at%stride+x.Len > block.Len && x.Len <= stride {
				t.Fatalf("%+v at distances of %d: %+v is elsewhere", block, stride, x)
			}
		}
	}
	if found < 100 {
		t.Errorf("%d layouts have a stride", found)
	}
}
