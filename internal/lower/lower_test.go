// SPDX-License-Identifier: Apache-2.0

package lower_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/layouttest"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/layout"
)

// place is a byte as a NIC names it.
type place struct {
	key  uint32
	addr uint64
}

// placesOf are the bytes of a model, in memory.
func placesOf(m layouttest.Model, mem []lower.Memory) (out []place) {
	for _, b := range m.Bytes() {
		off := b.Off
		for _, p := range mem[b.Source] {
			if off < p.Length {
				out = append(out, place{p.Key, p.Addr + uint64(off)})
				break
			}
			off -= p.Length
		}
	}
	return out
}

// fewest is how many work requests it takes at least, by trying every cut.
func fewest(local, remote []place, lim lower.Limits) int {
	best := make([]int, len(local)+1)
	for end := 1; end <= len(local); end++ {
		best[end] = end
		sges := 0
		for start := end - 1; start >= 0 && int64(end-start) <= lim.MaxMsg; start-- {
			if start+1 < end && (remote[start+1].key != remote[start].key || remote[start+1].addr != remote[start].addr+1) {
				break
			}
			if start+1 == end || local[start+1].key != local[start].key || local[start+1].addr != local[start].addr+1 {
				sges++
			}
			if sges > lim.MaxSGE {
				break
			}
			best[end] = min(best[end], best[start]+1)
		}
	}
	return best[len(local)]
}

// Every byte goes where the model says, in order, within the limits, and with
// the fewest work requests there can be.
func TestLowerAgainstModel(t *testing.T) {
	r := testenv.Seeded(t)
	for i := range 3000 {
		s := layouttest.Shape{Sources: 1 + r.IntN(3), Room: 1 + r.Int64N(200), Blocks: 60}
		ll, lm := s.Layout(t, r, 1+r.IntN(3))
		rl, rm := s.Layout(t, r, 1+r.IntN(3))
		lmem, rmem := s.Memory(r), s.Memory(r)
		loff, roff := r.Int64N(ll.Size()), r.Int64N(rl.Size())
		n := 1 + r.Int64N(min(ll.Size()-loff, rl.Size()-roff))
		lim := lower.Limits{MaxSGE: 1 + r.IntN(6), MaxMsg: 1 + r.Int64N(100), MaxInline: r.IntN(20)}
		x := lower.Lower(ibvfd.OpWrite, lower.Side{Layout: ll, Memory: lmem, Offset: loff}, lower.Side{Layout: rl, Memory: rmem, Offset: roff}, n, lim)
		wantL, wantR := placesOf(lm, lmem)[loff:loff+n], placesOf(rm, rmem)[roff:roff+n]
		var gotL, gotR []place
		made := 0
		wrs, sges := make([]ibvfd.SendWR, 1+r.IntN(4)), make([]ibvfd.SGE, lim.MaxSGE+r.IntN(9))
		for !x.Done() {
			k := x.Next(wrs, sges)
			if k == 0 {
				t.Fatalf("case %d: no work request, and not done", i)
			}
			made += k
			for _, wr := range wrs[:k] {
				total := int64(0)
				if len(wr.SGE) == 0 || len(wr.SGE) > lim.MaxSGE {
					t.Fatalf("case %d: %d SGEs of %d", i, len(wr.SGE), lim.MaxSGE)
				}
				for _, g := range wr.SGE {
					for b := range g.Length {
						gotL = append(gotL, place{g.LKey, g.Addr + uint64(b)})
						gotR = append(gotR, place{wr.RKey, wr.RemoteAddr + uint64(total)})
						total++
					}
				}
				if total > lim.MaxMsg || (wr.Flags&ibvfd.SendInline != 0) != (total <= int64(lim.MaxInline)) {
					t.Fatalf("case %d: %d bytes with %+v, flags %#x", i, total, lim, wr.Flags)
				}
			}
		}
		if x.Next(wrs, sges) != 0 {
			t.Fatalf("case %d: work requests after the last", i)
		}
		if !slices.Equal(gotL, wantL) || !slices.Equal(gotR, wantR) {
			t.Fatalf("case %d:\n local %v\n  want %v\nremote %v\n  want %v", i, gotL, wantL, gotR, wantR)
		}
		if want := fewest(wantL, wantR, lim); made != want {
			t.Fatalf("case %d: %d work requests, %d would do (%+v)", i, made, want, lim)
		}
	}
}

// transfer lowers all of a transfer into the caller's slices.
func transfer(tb testing.TB, local, remote lower.Side, n int64, wrs []ibvfd.SendWR, sges []ibvfd.SGE) (made int) {
	x := lower.Lower(ibvfd.OpWrite, local, remote, n, lower.Limits{MaxSGE: 16, MaxMsg: 1 << 30})
	return drain(x, wrs, sges)
}

func drain(x *lower.Lowering, wrs []ibvfd.SendWR, sges []ibvfd.SGE) (made int) {
	for {
		k := x.Next(wrs, sges)
		if k == 0 {
			return made
		}
		made += k
	}
}

const benchBlock = 16 << 10

// benchSides are n blocks of 16 KiB: every other block of one source, and
// blocks in disorder of a second, of many pieces.
func benchSides(tb testing.TB, n int64) map[string]lower.Side {
	every, err := layout.Interleaved(layout.Extent{Len: benchBlock}, layout.Dim{Count: n, Stride: 2 * benchBlock})
	if err != nil {
		tb.Fatal(err)
	}
	var list []layout.Extent
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(int(n)) {
		list = append(list, layout.Extent{Off: int64(i) * 2 * benchBlock, Len: benchBlock})
	}
	table, err := layout.SG(list...)
	if err != nil {
		tb.Fatal(err)
	}
	one := []lower.Memory{{{Addr: 1 << 32, Length: 2 * n * benchBlock, Key: 7}}}
	var many lower.Memory
	for i := range uint64(64) {
		many = append(many, lower.Piece{Addr: i << 40, Length: 2*n*benchBlock/64 + 1, Key: uint32(i)})
	}
	return map[string]lower.Side{"interleaved": {Layout: every, Memory: one}, "list": {Layout: table, Memory: one}, "list-64-MRs": {Layout: table, Memory: []lower.Memory{many}}}
}

func BenchmarkLower(b *testing.B) {
	for _, n := range []int64{100, 1_000, 10_000, 100_000} {
		sides := benchSides(b, n)
		remote := lower.Side{Memory: []lower.Memory{{{Addr: 1 << 50, Length: n * benchBlock, Key: 9}}}}
		remote.Layout, _ = layout.Contiguous(0, n*benchBlock)
		for _, name := range []string{"interleaved", "list", "list-64-MRs"} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				wrs, sges := make([]ibvfd.SendWR, 64), make([]ibvfd.SGE, 1024)
				b.ReportAllocs()
				cpu := testenv.CPUTime(b)
				for b.Loop() {
					transfer(b, sides[name], remote, n*benchBlock, wrs, sges)
				}
				cpu(b.N, "cpu-ns/op")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/block")
			})
		}
	}
}

// Lowering allocates nothing for a block.
func TestLowerAllocatesNothing(t *testing.T) {
	const n = 1000
	for name, side := range benchSides(t, n) {
		remote := side
		x := lower.Lower(ibvfd.OpRead, side, remote, n*benchBlock, lower.Limits{MaxSGE: 4, MaxMsg: 1 << 30})
		wrs, sges := make([]ibvfd.SendWR, 8), make([]ibvfd.SGE, 32)
		start := *x
		if got := testing.AllocsPerRun(5, func() { *x = start; drain(x, wrs, sges) }); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}
