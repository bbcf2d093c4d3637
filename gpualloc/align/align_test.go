// SPDX-License-Identifier: Apache-2.0

package align

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurdma/gpurdma/failure"
)

const (
	kib = 1 << 10
	mib = 1 << 20

	page4k  = 4 * kib
	page64k = 64 * kib
	huge    = 2 * mib
)

// base is an address of a GPU's allocation: aligned to its own 2 MiB pages.
const base = 0x7f_4000_0000

// Each case is a bug of another project, by its report. The buggy answer is that
// project's; ours must be right or a refusal.
func TestBugsOfOthers(t *testing.T) {
	tests := []struct {
		name    string
		request Request
		// came is what the export returned, for the piece asked about.
		came Descriptor
		want MR
		err  error
	}{
		{
			// The range of one 20 MiB segment was taken for all of a 1.8 GiB
			// buffer: offset+length=1925067648 > dmabuf_size=20971520.
			name: "Mooncake 2511: expandable segments, one of many exported",
			request: Request{
				Memory:      Range{base, 1925067648},
				Allocations: segments(base, 20*mib, 92), Page: page4k, Granule: huge, Join: true,
			},
			came: Descriptor{Size: 20971520},
			err:  ErrShort,
		},
		{
			name:    "Mooncake 2035: offset hard-coded to 0",
			request: Request{Memory: Range{base + 3*page4k + 8, 512}, Allocations: []Range{{base, huge}}, Page: page4k},
			came:    Descriptor{Size: page4k},
			want:    MR{Offset: 8, Length: 512, IOVA: base + 3*page4k + 8},
		},
		{
			name:    "Mooncake 2035: the same with a runtime that reports offsets",
			request: Request{Memory: Range{base + 3*page4k + 8, 512}, Allocations: []Range{{base, huge}}, Page: page4k, Rule: Whole},
			came:    Descriptor{Size: huge, Reported: true},
			want:    MR{Offset: 3*page4k + 8, Length: 512, IOVA: base + 3*page4k + 8},
		},
		{
			// A descriptor of the whole block for a range inside it, and no word
			// of where.
			name:    "mori 509: descriptor of the whole block, offset 0",
			request: Request{Memory: Range{base + page64k, page64k}, Allocations: []Range{{base, huge}}, Page: page4k},
			came:    Descriptor{Size: huge},
			err:     ErrOffset,
		},
		{
			name:    "mori 509: offset 0 reported for an allocation inside a block",
			request: Request{Memory: Range{base + page64k, page64k}, Allocations: []Range{{base + page64k, page64k}}, Page: page4k, Rule: Whole},
			came:    Descriptor{Size: huge, Reported: true},
			err:     ErrOffset,
		},
		{
			name:    "monarch 4285: small tensors are not page aligned",
			request: Request{Memory: Range{base + 0x200, 40}, Allocations: []Range{{base + 0x200, 512}}, Page: page4k},
			came:    Descriptor{Size: page4k},
			want:    MR{Offset: 0x200, Length: 40, IOVA: base + 0x200},
		},
		{
			name: "torchcomms 3078, libfabric 12473: MR of the first segment only",
			request: Request{
				Memory:      Range{base + mib, 4 * mib},
				Allocations: segments(base, huge, 3), Page: page4k, Granule: huge, Join: true,
			},
			came: Descriptor{Size: huge},
			err:  ErrShort,
		},
		{
			// Level Zero memory that was not allocated for export lies somewhere
			// in a pool.
			name:    "UCX 11903: memory without an export descriptor",
			request: Request{Memory: Range{base + page64k, page4k}, Allocations: []Range{{base + page64k, page4k}}, Page: page4k, Granule: page64k, Rule: Whole},
			came:    Descriptor{Size: huge},
			err:     ErrOffset,
		},
		{
			// mlx5's data-direct path wants IOVAs that are multiples of the page.
			name:    "UCX data-direct: unaligned IOVA",
			request: Request{Memory: Range{base + 0x1234, 100}, Allocations: []Range{{base, huge}}, Page: page4k, IOVA: PageAligned},
			came:    Descriptor{Size: page4k},
			want:    MR{Offset: 0, Length: 0x234 + 100, IOVA: base + 0x1000, Lead: 0x234},
		},
		{
			// 4096 was taken for the page size on a machine with 64 KiB pages.
			name:    "page size 64 KiB",
			request: Request{Memory: Range{base + page4k, page4k}, Allocations: []Range{{base, huge}}, Page: page64k},
			came:    Descriptor{Size: page64k},
			want:    MR{Offset: page4k, Length: page4k, IOVA: base + page4k},
		},
		{
			name:    "an offset that the kernel would refuse",
			request: Request{Memory: Range{base, page4k}, Allocations: []Range{{base, page4k}}, Page: page4k, Rule: Whole},
			came:    Descriptor{Size: huge, Offset: 0x200, Reported: true},
			err:     ErrAlignment,
		},
		{
			name:    "an offset beyond the descriptor",
			request: Request{Memory: Range{base, page4k}, Allocations: []Range{{base, page4k}}, Page: page4k, Rule: Whole},
			came:    Descriptor{Size: page4k, Offset: math.MaxUint64 - page4k + 1, Reported: true},
			err:     ErrShort,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pieces, err := Solve(tt.request)
			if err != nil {
				t.Fatal(err)
			}
			if len(pieces) != 1 {
				t.Fatalf("got %d pieces, want 1", len(pieces))
			}
			got, err := pieces[0].Bind(tt.came)
			if !errors.Is(err, tt.err) {
				t.Fatalf("got error %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A block's first allocation does have offset 0: the offset of a second address
// shows that the runtime has filled it in.
func TestProvenOffsetZero(t *testing.T) {
	pieces, err := Solve(Request{
		Memory:      Range{base, page64k},
		Allocations: []Range{{base, page64k}}, Page: page4k, Rule: Whole,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := pieces[0].Bind(Descriptor{Size: huge, Reported: true, Proven: true})
	if want := (MR{Length: page64k, IOVA: base}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func segments(addr, size uint64, n int) []Range {
	var out []Range
	for range n {
		out = append(out, Range{addr, size})
		addr += size
	}
	return out
}

func TestSolve(t *testing.T) {
	tests := []struct {
		name    string
		request Request
		exports []Range
		spills  []uint64
	}{
		{
			name:    "segments exported by one call",
			request: Request{Memory: Range{base + mib, 4 * mib}, Allocations: segments(base, huge, 3), Page: page4k, Granule: huge, Join: true},
			exports: []Range{{base, 3 * huge}},
			spills:  []uint64{0},
		},
		{
			name:    "segments exported one by one",
			request: Request{Memory: Range{base + mib, 4 * mib}, Allocations: segments(base, huge, 3), Page: page4k, Granule: huge},
			exports: []Range{{base, huge}, {base + huge, huge}, {base + 2*huge, huge}},
			spills:  []uint64{0, 0, 0},
		},
		{
			name:    "only what is touched, given in any order",
			request: Request{Memory: Range{base + huge + 5, 7}, Allocations: []Range{{base + 2*huge, huge}, {base + huge, huge}, {base, huge}}, Page: page4k},
			exports: []Range{{base + huge, page4k}},
			spills:  []uint64{0},
		},
		{
			name:    "neighbours in the same page are spilt",
			request: Request{Memory: Range{base + 512, 1000}, Allocations: []Range{{base + 512, 1024}}, Page: page4k},
			exports: []Range{{base, page4k}},
			spills:  []uint64{page4k - 1024},
		},
		{
			name:    "chunks end at granules",
			request: Request{Memory: Range{base + mib, 4 * mib}, Allocations: []Range{{base, 8 * mib}}, Page: page4k, Granule: huge, MaxLength: huge + 1},
			exports: []Range{{base, huge}, {base + huge, huge}, {base + 2*huge, huge}},
			spills:  []uint64{0, 0, 0},
		},
		{
			name:    "whole allocations",
			request: Request{Memory: Range{base + 7, huge}, Allocations: segments(base, huge, 2), Page: page4k, Rule: Whole, Join: true},
			exports: []Range{{base, huge}, {base + huge, huge}},
			spills:  []uint64{0, 0},
		},
		{
			name:    "the last page of the address space",
			request: Request{Memory: Range{math.MaxUint64 - 9, 10}, Page: page4k},
			exports: []Range{{math.MaxUint64 - page4k + 1, page4k}},
			spills:  []uint64{0},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pieces, err := Solve(tt.request)
			if err != nil {
				t.Fatal(err)
			}
			var exports []Range
			var spills []uint64
			for _, p := range pieces {
				exports, spills = append(exports, p.Export), append(spills, p.Spill)
			}
			if diff := cmp.Diff(tt.exports, exports); diff != "" {
				t.Errorf("exports: %s", diff)
			}
			if diff := cmp.Diff(tt.spills, spills); diff != "" {
				t.Errorf("spills: %s", diff)
			}
		})
	}
}

func TestSolveRefuses(t *testing.T) {
	ok := []Range{{base, huge}}
	tests := map[string]Request{
		"no bytes":                  {Memory: Range{base, 0}, Page: page4k},
		"wraps around":              {Memory: Range{math.MaxUint64, 2}, Page: page4k},
		"page size 0":               {Memory: Range{base, 1}},
		"page size odd":             {Memory: Range{base, 1}, Page: 3000},
		"granule below the page":    {Memory: Range{base, 1}, Page: page64k, Granule: page4k},
		"before the allocation":     {Memory: Range{base - 1, 2}, Allocations: ok, Page: page4k},
		"behind the allocation":     {Memory: Range{base + huge - 1, 2}, Allocations: ok, Page: page4k},
		"in another allocation":     {Memory: Range{base + 2*huge, 2}, Allocations: ok, Page: page4k},
		"a hole between":            {Memory: Range{base, 3 * huge}, Allocations: []Range{{base, huge}, {base + 2*huge, huge}}, Page: page4k},
		"allocations overlap":       {Memory: Range{base, 3 * mib}, Allocations: []Range{{base, huge}, {base + mib, huge}}, Page: page4k},
		"the last one overlaps":     {Memory: Range{base, mib}, Allocations: []Range{{base, mib}, {base, huge}}, Page: page4k},
		"empty allocation":          {Memory: Range{base, 1}, Allocations: []Range{{base, 0}}, Page: page4k},
		"allocation wraps around":   {Memory: Range{base, 1}, Allocations: []Range{{base, math.MaxUint64}}, Page: page4k},
		"whole, and nothing known":  {Memory: Range{base, 1}, Page: page4k, Rule: Whole},
		"pieces below the granule":  {Memory: Range{base, 1}, Page: page4k, MaxLength: 100},
		"no room to align outwards": {Memory: Range{1, math.MaxUint64}, Page: page4k},
	}
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Solve(r)
			if !errors.Is(err, failure.ErrRange) {
				t.Errorf("got %v, %v, want ErrRange", got, err)
			}
		})
	}
}

// model is an exporter whose dma-bufs know the address of each of their bytes.
type model struct{ begin, size uint64 } // the dma-buf's first byte is at address begin

func (m model) address(offset uint64) uint64 { return m.begin + offset }

// check holds for every answer: the pieces are the memory, each byte of it is
// in the dma-buf at the MR's offset and is found at its own address.
func check(t *testing.T, r Request, export func(Piece) (model, Descriptor)) {
	t.Helper()
	pieces, err := Solve(r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	next := r.Memory.Addr
	for _, p := range pieces {
		if p.Memory.Addr != next || p.Memory.Length == 0 {
			t.Fatalf("%+v: a piece serves %v, want it to begin at %#x", r, p.Memory, next)
		}
		next += p.Memory.Length
		if !p.Export.Contains(p.Memory) {
			t.Fatalf("%+v: export %v does not hold %v", r, p.Export, p.Memory)
		}
		m, d := export(p)
		mr, err := p.Bind(d)
		if err != nil {
			t.Fatalf("%+v: %+v of %+v: %v", r, d, p, err)
		}
		switch {
		case mr.Offset > m.size || mr.Length > m.size-mr.Offset:
			t.Fatalf("%+v: MR %+v is beyond %d bytes", r, mr, m.size)
		case (mr.Offset^mr.IOVA)&(r.Page-1) != 0:
			t.Fatalf("%+v: the kernel refuses MR %+v", r, mr)
		case r.IOVA == PageAligned && mr.IOVA&(r.Page-1) != 0:
			t.Fatalf("%+v: unaligned IOVA in MR %+v", r, mr)
		case m.address(mr.Offset) != mr.IOVA:
			t.Fatalf("%+v: MR %+v shows %#x at its IOVA", r, mr, m.address(mr.Offset))
		case mr.IOVA+mr.Lead != p.Memory.Addr || mr.Length-mr.Lead != p.Memory.Length:
			t.Fatalf("%+v: MR %+v does not serve %v", r, mr, p.Memory)
		}
	}
	if next-r.Memory.Addr != r.Memory.Length {
		t.Fatalf("%+v: the pieces end at %#x", r, next)
	}
}

// random makes a request that has an answer.
func random(rng *rand.Rand) Request {
	page := uint64(page4k) << (4 * rng.Uint64N(2))
	granule := page << rng.Uint64N(6)
	r := Request{Page: page, Granule: granule, IOVA: IOVARule(rng.IntN(2)), Join: rng.IntN(2) == 0, Rule: Rule(rng.IntN(2))}
	at := uint64(base) + granule*rng.Uint64N(4)
	begin := at
	for range 1 + rng.IntN(5) {
		n := granule * (1 + rng.Uint64N(8))
		r.Allocations = append(r.Allocations, Range{at, n})
		at += n
	}
	rng.Shuffle(len(r.Allocations), func(i, j int) {
		r.Allocations[i], r.Allocations[j] = r.Allocations[j], r.Allocations[i]
	})
	from := begin + rng.Uint64N(at-begin)
	r.Memory = Range{from, 1 + rng.Uint64N(at-from)}
	if rng.IntN(2) == 0 {
		r.MaxLength = granule * (1 + rng.Uint64N(3))
	}
	return r
}

func TestEveryByteIsAtItsAddress(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		r := random(rng)
		check(t, r, func(p Piece) (model, Descriptor) {
			if r.Rule == Exact {
				return model{p.Export.Addr, p.Export.Length}, Descriptor{Size: p.Export.Length}
			}
			if rng.IntN(2) == 0 {
				return model{p.Export.Addr, p.Export.Length}, Descriptor{Size: p.Export.Length}
			}
			// A block that begins before the allocation and ends behind it.
			before, behind := r.Page*(1+rng.Uint64N(9)), r.Page*rng.Uint64N(9)
			size := before + p.Export.Length + behind
			return model{p.Export.Addr - before, size}, Descriptor{Size: size, Offset: before, Reported: true}
		})
	}
}

// Whatever is asked: an answer that holds, or a refusal; never a panic.
func FuzzSolve(f *testing.F) {
	f.Add(uint64(base), uint64(mib), uint64(base), uint64(huge), uint64(0), uint64(page4k), uint64(0), uint64(0), byte(0))
	f.Add(uint64(1), uint64(math.MaxUint64), uint64(0), uint64(0), uint64(1), uint64(page64k), uint64(huge), uint64(huge), byte(7))
	f.Fuzz(func(t *testing.T, addr, length, alloc, allocLen, second, page, granule, limit uint64, how byte) {
		r := Request{
			Memory: Range{addr, length}, Page: page, Granule: granule,
			Rule: Rule(how & 1), IOVA: IOVARule(how >> 1 & 1), Join: how&4 != 0,
		}
		if allocLen != 0 {
			if powerOfTwo(page) {
				alloc &^= page - 1 // as exporters that answer for whole allocations align them
			}
			r.Allocations = []Range{{alloc, allocLen}, {alloc + allocLen, second}}
			if second == 0 {
				r.Allocations = r.Allocations[:1]
			}
		}
		// The number of pieces is the caller's choice: keep it small here.
		if limit >= length/64 {
			r.MaxLength = limit
		}
		pieces, err := Solve(r)
		if err != nil {
			var e *failure.Error
			if !errors.As(err, &e) {
				t.Fatalf("%+v: %v is no *failure.Error", r, err)
			}
			return
		}
		check(t, r, func(p Piece) (model, Descriptor) {
			return model{p.Export.Addr, p.Export.Length}, Descriptor{Size: p.Export.Length}
		})
		for _, p := range pieces {
			for _, size := range []uint64{0, 1, p.Export.Length - 1} {
				if size >= p.Export.Length {
					continue
				}
				if mr, err := p.Bind(Descriptor{Size: size}); err == nil {
					t.Fatalf("%+v: %+v in a dma-buf of %d bytes: %+v", r, p, size, mr)
				}
			}
		}
	})
}
