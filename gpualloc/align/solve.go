// SPDX-License-Identifier: Apache-2.0

package align

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// What [Solve] and [Piece.Bind] refuse for, beside dmabuf.ErrRange. All come
// in a *dmabuf.Error with the numbers.
var (
	// ErrShort: the descriptor ends before the memory does.
	ErrShort = errors.New("the descriptor does not cover the memory")
	// ErrOffset: where in the descriptor the memory begins cannot be known.
	ErrOffset = errors.New("the memory's offset in the descriptor is not certain")
	// ErrAlignment: offset and IOVA disagree below the page size.
	ErrAlignment = errors.New("offset and IOVA are aligned differently")
)

// Rule is what a runtime's export call returns a descriptor of.
type Rule int

// The rules.
const (
	// Exact: of the range that was asked for, which is a multiple of the
	// granule at both ends (cuMemGetHandleForAddressRange).
	Exact Rule = iota
	// Whole: of the allocation that holds the address, or of something larger
	// around it. The runtime reports the offset (hsa_amd_portable_export_dmabuf),
	// or the descriptor begins where the allocation does
	// (zeMemGetAllocProperties).
	Whole
)

// IOVARule is what the importer demands of an MR's IOVA.
type IOVARule int

// The rules.
const (
	// SameAddress: any IOVA does, so it is the memory's own address.
	SameAddress IOVARule = iota
	// PageAligned: the IOVA is a multiple of the page size (mlx5's data-direct
	// path). The MR then begins up to a page before the memory.
	PageAligned
)

// Request is a question to [Solve].
type Request struct {
	// Memory is what the caller owns and wants registered.
	Memory Range
	// Allocations hold it: one for ordinary allocations, one per mapping for
	// the virtual memory APIs, in any order. Those that do not touch Memory are
	// left out of the answer. Empty stands for not known, which [Whole] cannot
	// work with.
	Allocations []Range
	// Page is the host's page size, Granule what exports are multiples of; 0
	// stands for Page. Both are powers of two, in bytes.
	Page, Granule uint64
	Rule          Rule
	IOVA          IOVARule
	// Join: one export may span neighbouring allocations.
	Join bool
	// MaxLength splits what is longer into pieces with an export of their own,
	// in bytes, rounded down to the granule; 0 does not. An IOMMU that
	// translates maps all of a descriptor, however little of it an MR covers.
	// [Whole] cannot split an export: there, it only splits MRs.
	MaxLength uint64
}

// Piece is one export and one MR.
type Piece struct {
	// Memory is the part of the request's memory that the piece serves.
	Memory Range
	// Export is what to ask the runtime for.
	Export Range
	// Spill is how many bytes of Export belong to none of the allocations
	// given: neighbours of the memory that share its first or last page. The
	// MR does not cover them.
	Spill uint64

	page, granule uint64
	rule          Rule
	iova          IOVARule
}

func refuse(err error, remedy, format string, args ...any) error {
	return &dmabuf.Error{Op: "align", Detail: fmt.Sprintf(format, args...), Remedy: remedy, Err: err}
}

// Solve answers which exports and MRs serve the memory, in address order.
// Together the pieces' Memory is exactly the request's.
func Solve(r Request) ([]Piece, error) {
	if r.Granule == 0 {
		r.Granule = r.Page
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	held, err := r.holders()
	if err != nil {
		return nil, err
	}
	var out []Piece
	for _, h := range held {
		parts, err := r.pieces(h)
		if err != nil {
			return nil, err
		}
		out = append(out, parts...)
	}
	return out, nil
}

func (r Request) check() error {
	switch {
	case !powerOfTwo(r.Page) || !powerOfTwo(r.Granule) || r.Granule < r.Page:
		return refuse(dmabuf.ErrRange, "", "page size %#x and granule %#x are not powers of two in this order", r.Page, r.Granule)
	case r.Memory.Length == 0:
		return refuse(dmabuf.ErrRange, "give at least one byte", "no memory at %#x", r.Memory.Addr)
	case !r.Memory.valid():
		return refuse(dmabuf.ErrRange, "", "%v wraps around the address space", r.Memory)
	case r.Rule == Whole && len(r.Allocations) == 0:
		return refuse(dmabuf.ErrRange, "", "the allocation that holds %v is not known", r.Memory)
	case r.MaxLength != 0 && r.MaxLength < r.Granule:
		return refuse(dmabuf.ErrRange, "allow longer pieces", "pieces of %#x bytes, where exports are multiples of %#x", r.MaxLength, r.Granule)
	}
	for _, a := range r.Allocations {
		if !a.valid() {
			return refuse(dmabuf.ErrRange, "", "an allocation %v is empty or wraps around the address space", a)
		}
	}
	return nil
}

// holders returns the allocations that hold the memory, in order and without a
// hole; neighbours joined where one export may span them.
func (r Request) holders() ([]Range, error) {
	if len(r.Allocations) == 0 {
		return []Range{r.Memory}, nil
	}
	all := slices.DeleteFunc(slices.Clone(r.Allocations), func(a Range) bool {
		return a.intersect(r.Memory).Length == 0
	})
	slices.SortFunc(all, func(a, b Range) int { return cmp.Compare(a.Addr, b.Addr) })
	next := r.Memory.Addr
	for i, a := range all {
		switch {
		case a.Addr > next:
			return nil, r.hole(next)
		case i > 0 && a.Addr < next:
			return nil, refuse(dmabuf.ErrRange, "", "allocations %v and %v overlap", all[i-1], a)
		case a.Contains(Range{r.Memory.last(), 1}):
			if i != len(all)-1 {
				return nil, refuse(dmabuf.ErrRange, "", "allocations %v and %v overlap", a, all[i+1])
			}
			return r.join(all), nil
		}
		next = a.last() + 1
	}
	return nil, r.hole(next)
}

func (r Request) hole(at uint64) error {
	return refuse(dmabuf.ErrRange, "pass memory that is allocated, or mapped, as a whole",
		"%#x, %#x bytes into %v, is in no allocation", at, at-r.Memory.Addr, r.Memory)
}

func (r Request) join(held []Range) []Range {
	if !r.Join || r.Rule != Exact {
		return held
	}
	first, last := held[0], held[len(held)-1]
	return []Range{{first.Addr, last.last() - first.Addr + 1}}
}

// pieces splits the memory inside one holder.
func (r Request) pieces(holder Range) ([]Piece, error) {
	mem := holder.intersect(r.Memory)
	limit := r.MaxLength &^ (r.Granule - 1)
	var out []Piece
	for mem.Length > 0 {
		part := mem
		if limit != 0 {
			// Cut where a granule ends, so that no two exports overlap.
			if room := limit - part.Addr&(r.Granule-1); part.Length > room {
				part.Length = room
			}
		}
		p := Piece{Memory: part, page: r.Page, granule: r.Granule, rule: r.Rule, iova: r.IOVA}
		if r.Rule == Whole {
			p.Export = holder
		} else {
			e, ok := part.outward(r.Granule)
			if !ok {
				return nil, refuse(dmabuf.ErrRange, "", "%v cannot be aligned to %#x", part, r.Granule)
			}
			p.Export, p.Spill = e, r.spill(e)
		}
		out = append(out, p)
		mem = Range{mem.Addr + part.Length, mem.Length - part.Length}
	}
	return out, nil
}

// spill counts the bytes of e outside every allocation.
func (r Request) spill(e Range) uint64 {
	if len(r.Allocations) == 0 {
		return 0
	}
	n := e.Length
	for _, a := range r.Allocations {
		n -= min(n, a.intersect(e).Length)
	}
	return n
}
