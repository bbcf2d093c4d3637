// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"math/rand/v2"
	"testing"

	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/layout"
)

// Spans of a buffer through random layouts overlap if they have a byte in common. Of those without one,
// some are seen to lie between one another.
func TestBytesOverlap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const base = 1 << 40
	span := func() (RemoteSpan, map[int64]bool, []Bytes) {
		l, err := layout.Interleaved(layout.Extent{Off: r.Int64N(300), Len: 1 + r.Int64N(16)}, layout.Dim{Count: 1 + r.Int64N(20), Stride: 8 * (1 + r.Int64N(4))})
		if err == nil && r.IntN(3) == 0 {
			l, err = l.Repeat(1+r.Int64N(3), 96)
		}
		if err != nil {
			t.Fatal(err)
		}
		buf := &RemoteBuffer{spaces: []lower.Space{lower.NewSpace(lower.Memory{{Addr: base, Length: 1 << 16, Key: 7}})}, memory: []uint64{1}, layout: l}
		s := buf.All()
		if r.IntN(2) == 0 {
			s.Offset = r.Int64N(s.Length)
			s.Length = 1 + r.Int64N(s.Length-s.Offset)
		}
		has := map[int64]bool{}
		for x := range l.Part(s.Offset, s.Length) {
			for i := range x.Len {
				has[x.Off+i] = true
			}
		}
		return s, has, s.AppendBytes(nil)
	}
	between, taken := 0, 0
	for range 20_000 {
		a, hasA, bytesA := span()
		b, hasB, bytesB := span()
		common := false
		for at := range hasA {
			common = common || hasB[at]
		}
		overlap := false
		for _, x := range bytesA {
			for _, y := range bytesB {
				overlap = overlap || x.Overlaps(y)
				if x.Overlaps(y) != y.Overlaps(x) {
					t.Fatalf("%+v and %+v", x, y)
				}
			}
		}
		if common && !overlap {
			t.Fatalf("%+v and %+v have bytes in common: %+v, %+v", a, b, bytesA, bytesB)
		}
		x, y := bytesA[0], bytesB[0]
		if whole := len(bytesA)+len(bytesB) == 2 && x.Period == y.Period && x.Period > 0; whole && !overlap && x.Lo < y.Hi && y.Lo < x.Hi {
			between++
		}
		if !common && overlap {
			taken++
		}
	}
	if between < 100 {
		t.Errorf("%d pairs lie between one another", between)
	}
	t.Logf("%d pairs lie between one another; %d are taken for ones that overlap", between, taken)
}

func TestBytesBetween(t *testing.T) {
	comb := func(lo, width, period uint64) Bytes { return Bytes{1, lo, lo + 9*period + width, width, period} }
	for _, c := range []struct {
		name string
		x, y Bytes
		want bool
	}{
		{"other memory", Bytes{Memory: 1, Hi: 10}, Bytes{Memory: 2, Hi: 10}, false},
		{"one after the other", Bytes{Memory: 1, Hi: 10}, Bytes{Memory: 1, Lo: 10, Hi: 11}, false},
		{"one byte", Bytes{Memory: 1, Hi: 10}, Bytes{Memory: 1, Lo: 9, Hi: 11}, true},
		{"two heads of a cache", comb(0, 128, 1024), comb(128, 128, 1024), false},
		{"the first and the last head", comb(0, 128, 1024), comb(896, 128, 1024), false},
		{"heads that share a byte", comb(0, 129, 1024), comb(128, 128, 1024), true},
		{"the last and the next first", comb(0, 128, 1024), comb(897, 128, 1024), true},
		{"the same", comb(5, 128, 1024), comb(5, 128, 1024), true},
		{"distances that divide each other", comb(0, 128, 1024), comb(512, 128, 2048), false},
		{"distances of a small divisor", comb(0, 128, 1024), comb(512, 128, 1000), true},
		{"a run between two blocks", comb(0, 128, 1024), Bytes{Memory: 1, Lo: 1024 + 128, Hi: 2048}, false},
		{"a run that begins in a block", comb(0, 128, 1024), Bytes{Memory: 1, Lo: 1024 + 127, Hi: 2048}, true},
		{"a run that ends in a block", comb(0, 128, 1024), Bytes{Memory: 1, Lo: 1024 + 128, Hi: 2049}, true},
		{"a run beyond a period", comb(0, 128, 1024), Bytes{Memory: 1, Lo: 1024 + 128, Hi: 4096}, true},
	} {
		if got := c.x.Overlaps(c.y); got != c.want || c.y.Overlaps(c.x) != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
