// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// place is a byte as a NIC names it.
type place struct {
	key  uint32
	addr uint64
}

// places are the bytes of a model, in memory.
func (m model) places(mem []Memory) (out []place) {
	for _, b := range m.bytes() {
		off := b.Offset
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
			m = append(m, Piece{addr, n, uint32(1 + r.IntN(3))})
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

// fewest is how many work requests it takes at least, by trying every cut.
func fewest(local, remote []place, lim Limits) int {
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
	r := seeded(t)
	for i := range 3000 {
		s := shape{sources: 1 + r.IntN(3), room: 1 + r.Int64N(200), blocks: 60}
		ll, lm := s.layout(t, r, 1+r.IntN(3))
		rl, rm := s.layout(t, r, 1+r.IntN(3))
		lmem, rmem := s.memory(r), s.memory(r)
		loff, roff := r.Int64N(ll.Size()), r.Int64N(rl.Size())
		n := 1 + r.Int64N(min(ll.Size()-loff, rl.Size()-roff))
		lim := Limits{MaxSGE: 1 + r.IntN(6), MaxMsg: 1 + r.Int64N(100), MaxInline: r.IntN(20)}
		x, err := Lower(ibvfd.OpWrite, Side{ll, lmem, loff}, Side{rl, rmem, roff}, n, lim)
		if err != nil {
			t.Fatal(err)
		}
		wantL, wantR := lm.places(lmem)[loff:loff+n], rm.places(rmem)[roff:roff+n]
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

func TestLowerRefuses(t *testing.T) {
	l, err := Contiguous(0, 100)
	if err != nil {
		t.Fatal(err)
	}
	good := Side{Layout: l, Memory: []Memory{{{0x1000, 100, 1}}}}
	short := Side{Layout: l, Memory: []Memory{{{0x1000, 99, 1}}}}
	holes := Side{Layout: l, Memory: []Memory{{{0x1000, 0, 1}, {0x1000, 100, 1}}}}
	less := Side{Layout: l, Memory: []Memory{{{0x1000, 200, 1}, {0x1000, -100, 1}}}}
	lim := Limits{MaxSGE: 4, MaxMsg: 1 << 20}
	for name, f := range map[string]func() (*Lowering, error){
		"length 0":       func() (*Lowering, error) { return Lower(ibvfd.OpWrite, good, good, 0, lim) },
		"too long":       func() (*Lowering, error) { return Lower(ibvfd.OpWrite, good, good, 101, lim) },
		"offset":         func() (*Lowering, error) { return Lower(ibvfd.OpWrite, good, Side{l, good.Memory, -1}, 1, lim) },
		"past the end":   func() (*Lowering, error) { return Lower(ibvfd.OpRead, good, Side{l, good.Memory, 100}, 1, lim) },
		"short memory":   func() (*Lowering, error) { return Lower(ibvfd.OpRead, good, short, 1, lim) },
		"no bytes":       func() (*Lowering, error) { return Lower(ibvfd.OpWrite, good, holes, 1, lim) },
		"fewer than 0":   func() (*Lowering, error) { return Lower(ibvfd.OpWrite, less, good, 1, lim) },
		"no memory":      func() (*Lowering, error) { return Lower(ibvfd.OpRead, Side{Layout: l}, good, 1, lim) },
		"a message":      func() (*Lowering, error) { return Lower(ibvfd.OpSend, good, good, 1, lim) },
		"no SGE":         func() (*Lowering, error) { return Lower(ibvfd.OpWrite, good, good, 1, Limits{MaxMsg: 1}) },
		"no message":     func() (*Lowering, error) { return Lower(ibvfd.OpWrite, good, good, 1, Limits{MaxSGE: 1}) },
		"an empty shape": func() (*Lowering, error) { return Lower(ibvfd.OpWrite, Side{}, good, 1, lim) },
	} {
		if x, err := f(); !errors.Is(err, dmabuf.ErrRange) || x != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A port that names no limit has one: a message of 0 bytes would lower nothing,
// for ever.
func TestMaxMessage(t *testing.T) {
	for max, want := range map[uint32]int64{0: maxWR, 1: 1, maxWR: maxWR, math.MaxUint32: maxWR} {
		if got := maxMessage(ibdev.PortAttr{MaxMsg: max}); got != want {
			t.Errorf("a port of %d: %d, want %d", max, got, want)
		}
	}
}

// transfer lowers all of a transfer into the caller's slices.
func transfer(tb testing.TB, local, remote Side, n int64, wrs []ibvfd.SendWR, sges []ibvfd.SGE) (made int) {
	x, err := Lower(ibvfd.OpWrite, local, remote, n, Limits{MaxSGE: 16, MaxMsg: 1 << 30})
	if err != nil {
		tb.Fatal(err)
	}
	return drain(x, wrs, sges)
}

func drain(x *Lowering, wrs []ibvfd.SendWR, sges []ibvfd.SGE) (made int) {
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
func benchSides(tb testing.TB, n int64) map[string]Side {
	every, err := Interleaved(Range{0, 0, benchBlock}, Dim{n, 2 * benchBlock})
	if err != nil {
		tb.Fatal(err)
	}
	var list []Range
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(int(n)) {
		list = append(list, Range{0, int64(i) * 2 * benchBlock, benchBlock})
	}
	table, err := SG(list...)
	if err != nil {
		tb.Fatal(err)
	}
	one := []Memory{{{1 << 32, 2 * n * benchBlock, 7}}}
	var many Memory
	for i := range uint64(64) {
		many = append(many, Piece{i << 40, 2*n*benchBlock/64 + 1, uint32(i)})
	}
	return map[string]Side{"interleaved": {every, one, 0}, "list": {table, one, 0}, "list-64-MRs": {table, []Memory{many}, 0}}
}

func BenchmarkLower(b *testing.B) {
	for _, n := range []int64{100, 1_000, 10_000, 100_000} {
		sides := benchSides(b, n)
		remote := Side{Memory: []Memory{{{1 << 50, n * benchBlock, 9}}}}
		remote.Layout, _ = Contiguous(0, n*benchBlock)
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
		x, err := Lower(ibvfd.OpRead, side, remote, n*benchBlock, Limits{MaxSGE: 4, MaxMsg: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		wrs, sges := make([]ibvfd.SendWR, 8), make([]ibvfd.SGE, 32)
		start := *x
		if got := testing.AllocsPerRun(5, func() { *x = start; drain(x, wrs, sges) }); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}
