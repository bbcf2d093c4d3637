// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
)

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
		if l, err := c.make(); !errors.Is(err, failure.ErrRange) || l.Size() != 0 {
			t.Errorf("%s: %v, %v", c.name, slices.Collect(l.Part(0, 9)), err)
		}
	}
}
