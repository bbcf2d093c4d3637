// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// span is a range of the buffer, in bytes from its start.
type span struct{ off, len int64 }

func (s span) end() int64 { return s.off + s.len }

func (s span) String() string { return fmt.Sprintf("[%#x, %#x)", s.off, s.end()) }

// widen adds n bytes on both sides, within [0, size).
func (s span) widen(n, size int64) span {
	off := max(0, s.off-n)
	end := size
	if n < size-s.end() {
		end = s.end() + n
	}
	return span{off, end - off}
}

// Names of the cases, in the order in which they run.
const (
	CaseWhole         = "whole buffer"
	CaseFirstByte     = "first byte"
	CaseLastByte      = "last byte"
	CaseUnaligned     = "unaligned ranges"
	CasePageCrossing  = "page-crossing ranges"
	CaseAlignedMR     = "page-aligned sub-range MR"
	CaseUnalignedMR   = "unaligned sub-range MR"
	CaseIOVA          = "IOVA other than 0"
	CaseWritePastEnd  = "WRITE past the end of the MR is refused"
	CaseWriteBefore   = "WRITE before the start of the MR is refused"
	CaseReadPastEnd   = "READ past the end of the MR is refused"
	CaseNoRemoteWrite = "WRITE without remote-write access is refused"
	CaseDeregistered  = "WRITE after deregistration is refused"
)

// fullAccess is what most cases register with.
const fullAccess = ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead | ibvfd.AccessRemoteWrite

// plan is one case: a range to register and what to do with it.
type plan struct {
	name   string
	mr     span
	iova   uint64
	access ibvfd.Access
	moves  []span // transferred in both directions

	refuse  op   // if not 0: the operation that must be refused
	beyond  span // and its range, which the MR does not cover as a whole
	closed  bool // deregister before it
	skipped string
}

// op is the direction of a transfer.
type op int

const (
	opWrite op = iota + 1
	opRead
)

func (o op) String() string { return [...]string{"none", "RDMA WRITE", "RDMA READ"}[o] }

// bytes that the plan moves over RDMA, for progress.
func (p *plan) volume() (n int64) {
	for _, m := range p.moves {
		n += movesPerRange * m.len
	}
	return n
}

// highIOVA is an address that no offset could be mistaken for.
const highIOVA = 0x7ead_0000_0000

// subRangeMax bounds the MR of the sub-range cases: a larger one proves nothing
// more.
const subRangeMax = 1 << 20

// plans lays the cases over a buffer of size bytes.
func plans(size, page int64, seed uint64) []plan {
	rng := rand.New(rand.NewPCG(seed, uint64(size)))
	whole := span{0, size}

	unaligned := []span{oddSpan(rng, whole, page/4), oddSpan(rng, whole, page)}
	if size > 4*page {
		unaligned = append(unaligned, oddSpan(rng, whole, 3*page+page/2))
	}

	// A quarter in from each side leaves guard bytes, of this buffer, on both.
	inner := span{size / 4, min(size/2, subRangeMax)}
	odd := span{inner.off | 0x35, inner.len - 0x6d}
	pageOf := func(s span) uint64 { return uint64(s.off % page) }

	list := []plan{
		{name: CaseWhole, mr: whole, moves: []span{whole}},
		{name: CaseFirstByte, mr: whole, moves: []span{{0, 1}}},
		{name: CaseLastByte, mr: whole, moves: []span{{size - 1, 1}}},
		{name: CaseUnaligned, mr: whole, moves: unaligned},
		crossing(rng, whole, page),
		{name: CaseAlignedMR, mr: span{inner.off - inner.off%page, inner.len - inner.len%page}},
		{name: CaseUnalignedMR, mr: odd, iova: pageOf(odd), moves: []span{odd, {odd.off, 1}, {odd.end() - 1, 1}}},
		{name: CaseIOVA, mr: odd, iova: highIOVA + pageOf(odd), moves: []span{odd}},
		// At most 128 bytes: one packet at any MTU, checked before any byte of it is placed.
		{name: CaseWritePastEnd, mr: odd, iova: highIOVA + pageOf(odd), refuse: opWrite, beyond: span{odd.end() - 63, 64}.shift(rng)},
		{name: CaseWriteBefore, mr: odd, iova: highIOVA + pageOf(odd), refuse: opWrite, beyond: span{odd.off - 1, 64}},
		{name: CaseReadPastEnd, mr: odd, iova: highIOVA + pageOf(odd), refuse: opRead, beyond: span{odd.end() - 63, 64}.shift(rng)},
		{name: CaseNoRemoteWrite, mr: odd, iova: pageOf(odd), access: ibvfd.AccessLocalWrite | ibvfd.AccessRemoteRead, refuse: opWrite, beyond: span{odd.off, 64}},
		{name: CaseDeregistered, mr: odd, iova: pageOf(odd), refuse: opWrite, beyond: span{odd.off, 64}, closed: true},
	}
	for i := range list {
		p := &list[i]
		if p.access == 0 {
			p.access = fullAccess
		}
		if p.name == CaseAlignedMR {
			p.moves = []span{p.mr}
			if p.mr.len == 0 {
				p.skipped = "the buffer has one page only: its whole is the aligned sub-range"
			}
		}
	}
	return list
}

// shift moves a span, whose end is one byte out, out by up to 32 more.
func (s span) shift(rng *rand.Rand) span { return span{s.off + 1 + rng.Int64N(32), s.len} }

// oddSpan picks a range of about n bytes in s with an odd start and length.
func oddSpan(rng *rand.Rand, s span, n int64) span {
	length := max(1, min(n, s.len-2)-rng.Int64N(32)) | 1
	off := s.off + rng.Int64N(s.len-length)
	return span{min(off|1, s.end()-length), length}
}

// crossing covers the first, the last and a random page boundary.
func crossing(rng *rand.Rand, whole span, page int64) plan {
	p := plan{name: CasePageCrossing, mr: whole}
	boundaries := (whole.len+page-1)/page - 1
	if boundaries == 0 {
		p.skipped = "a buffer of one page has no page boundary inside"
		return p
	}
	for _, k := range slices.Compact(slices.Sorted(slices.Values([]int64{1, 1 + rng.Int64N(boundaries), boundaries}))) {
		before, after := 1+rng.Int64N(64), 1+rng.Int64N(64)
		end := min(k*page+after, whole.len)
		p.moves = append(p.moves, span{k*page - before, end - (k*page - before)})
	}
	return p
}

// CaseNames lists the names of Verify's cases, in the order in which they run.
func CaseNames() []string {
	var names []string
	for _, p := range plans(1<<20, 1<<12, 0) {
		names = append(names, p.name)
	}
	return names
}

// choose keeps the plans of the names given; all if there are none.
func choose(list []plan, names []string) ([]plan, error) {
	if len(names) == 0 {
		return list, nil
	}
	var out []plan
	for _, name := range names {
		i := slices.IndexFunc(list, func(p plan) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("canary: no case %q; there are: %s", name, strings.Join(CaseNames(), "; "))
		}
		out = append(out, list[i])
	}
	return out, nil
}
