// SPDX-License-Identifier: Apache-2.0

package align

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/failure"
)

// The errors of Solve and Piece.Bind, besides failure.ErrRange. Each is in a
// *failure.Error with the numbers.
var (
	// ErrShort means that the descriptor ends before the memory does.
	ErrShort = errors.New("the descriptor does not cover the memory")
	// ErrOffset means that the offset of the memory in the descriptor is not
	// certain.
	ErrOffset = errors.New("the memory's offset in the descriptor is not certain")
	// ErrAlignment means that offset and IOVA differ modulo the page size.
	ErrAlignment = errors.New("offset and IOVA are aligned differently")
)

// Rule says of which memory a runtime's export call returns a descriptor.
type Rule int

// The rules.
const (
	// Exact is a descriptor of the range that was asked for, whose two ends are
	// multiples of the granule (cuMemGetHandleForAddressRange).
	Exact Rule = iota
	// Whole is a descriptor of the allocation that holds the address, or of a
	// larger buffer that holds the allocation. The runtime reports the offset
	// (hsa_amd_portable_export_dmabuf), or the descriptor begins where the
	// allocation does (zeMemGetAllocProperties).
	Whole
)

// IOVARule says which IOVAs the importer accepts for an MR.
type IOVARule int

// The rules.
const (
	// SameAddress means that the importer accepts any IOVA. The IOVA is then
	// the memory's own address.
	SameAddress IOVARule = iota
	// PageAligned means that the IOVA must be a multiple of the page size
	// (mlx5's data-direct path). The MR then begins less than a page before the
	// memory.
	PageAligned
)

// Request says what Solve is to solve.
type Request struct {
	// Memory is the memory that the caller owns, and is to be registered.
	Memory Range
	// Allocations are those that hold Memory, in any order: one for ordinary
	// memory, one for each mapping of the virtual memory APIs. Solve ignores
	// those that do not overlap Memory. Empty means that they are not known;
	// the rule Whole needs them.
	Allocations []Range
	// Page is the host's page size. Exports are multiples of Granule; 0 stands
	// for Page. Both are powers of two, in bytes.
	Page, Granule uint64
	Rule          Rule
	IOVA          IOVARule
	// Join says that one export may span neighbouring allocations.
	Join bool
	// MaxLength is the longest piece in bytes, rounded down to the granule; 0
	// is no limit. Each piece has an export of its own, because an IOMMU that
	// translates maps all of a descriptor, however little of it an MR covers.
	// With the rule Whole, MaxLength splits only the MRs.
	MaxLength uint64
}

// Piece is one export and one MR.
type Piece struct {
	// Memory is the part of the request's memory that the piece covers.
	Memory Range
	// Export is the range to export by the runtime.
	Export Range
	// Spill is the number of bytes of Export that belong to none of the
	// request's allocations: bytes of other allocations in the first or the
	// last page of the memory. The MR does not cover them.
	Spill uint64

	page, granule uint64
	rule          Rule
	iova          IOVARule
}

func refuse(err error, remedy, format string, args ...any) error {
	return &failure.Error{Op: "align", Detail: fmt.Sprintf(format, args...), Remedy: remedy, Err: err}
}

// Solve returns the exports and MRs for the memory, in the order of addresses.
// The Memory of all pieces together is the request's. Errors: failure.ErrRange
// for memory that the allocations do not hold, and for sizes that are not
// valid.
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
		return refuse(failure.ErrRange, "", "page size %#x and granule %#x are not powers of two in this order", r.Page, r.Granule)
	case r.Memory.Length == 0:
		return refuse(failure.ErrRange, "give at least one byte", "no memory at %#x", r.Memory.Addr)
	case !r.Memory.valid():
		return refuse(failure.ErrRange, "", "%v wraps around the address space", r.Memory)
	case r.Rule == Whole && len(r.Allocations) == 0:
		return refuse(failure.ErrRange, "", "the allocation that holds %v is not known", r.Memory)
	case r.MaxLength != 0 && r.MaxLength < r.Granule:
		return refuse(failure.ErrRange, "allow longer pieces", "pieces of %#x bytes, where exports are multiples of %#x", r.MaxLength, r.Granule)
	}
	for _, a := range r.Allocations {
		if !a.valid() {
			return refuse(failure.ErrRange, "", "an allocation %v is empty or wraps around the address space", a)
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
			return nil, refuse(failure.ErrRange, "", "allocations %v and %v overlap", all[i-1], a)
		case a.Contains(Range{r.Memory.last(), 1}):
			if i != len(all)-1 {
				return nil, refuse(failure.ErrRange, "", "allocations %v and %v overlap", a, all[i+1])
			}
			return r.join(all), nil
		}
		next = a.last() + 1
	}
	return nil, r.hole(next)
}

func (r Request) hole(at uint64) error {
	return refuse(failure.ErrRange, "pass memory that is allocated, or mapped, as a whole",
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
				return nil, refuse(failure.ErrRange, "", "%v cannot be aligned to %#x", part, r.Granule)
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
