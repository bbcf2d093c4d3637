// SPDX-License-Identifier: Apache-2.0

package align

// Descriptor is what an export returned.
type Descriptor struct {
	// Size is the dma-buf's own size in bytes, from lseek(2). It may differ
	// from the size that was asked for.
	Size uint64
	// Offset is the offset in the dma-buf at which the exported range begins,
	// as the runtime reports it. Reported is false if the runtime reports none.
	Offset   uint64
	Reported bool
	// Proven says that for another address of the allocation the runtime
	// reported an offset that differs by as much as the address.
	Proven bool
}

// MR says what to register: Length bytes of the dma-buf from Offset on, at
// IOVA.
type MR struct {
	Offset, Length, IOVA uint64
	// Lead is the number of bytes of the MR that lie before the memory, less
	// than a page. It is 0 unless the rule is PageAligned.
	Lead uint64
}

// Bind returns the piece's MR in the descriptor that the export has returned.
//
// Errors: [ErrShort] if the descriptor ends before the memory does, [ErrOffset]
// if the offset is not certain, [ErrAlignment] if the kernel would refuse the
// offset.
func (p Piece) Bind(d Descriptor) (MR, error) {
	begin, err := p.begin(d)
	if err != nil {
		return MR{}, err
	}
	delta := p.Memory.Addr - p.Export.Addr
	start := begin + delta
	if start < begin || start > d.Size || p.Memory.Length > d.Size-start {
		return MR{}, refuse(ErrShort, "", "offset %#x + length %#x is beyond a dma-buf of %#x bytes", start, p.Memory.Length, d.Size)
	}
	mr := MR{Offset: start, Length: p.Memory.Length, IOVA: p.Memory.Addr}
	if (mr.Offset^mr.IOVA)&(p.page-1) != 0 {
		return MR{}, refuse(ErrAlignment, "", "offset %#x and IOVA %#x differ below the page size %#x", mr.Offset, mr.IOVA, p.page)
	}
	if p.iova == PageAligned {
		mr.Lead = mr.IOVA & (p.page - 1)
		mr.Offset -= mr.Lead
		mr.IOVA -= mr.Lead
		mr.Length += mr.Lead
	}
	return mr, nil
}

// begin answers where in the dma-buf the exported range begins.
func (p Piece) begin(d Descriptor) (uint64, error) {
	switch {
	case d.Reported:
		return p.reported(d)
	case p.rule == Exact:
		return 0, p.exact(d)
	}
	return 0, p.whole(d)
}

// exact: the dma-buf is the range, no byte less or more. A larger one is a block
// around the range, and the runtime does not say where in it the range is.
func (p Piece) exact(d Descriptor) error {
	switch {
	case d.Size < p.Export.Length:
		return refuse(ErrShort, "export each allocation, or mapping, by itself",
			"the dma-buf has %#x of the %#x bytes of %v", d.Size, p.Export.Length, p.Export)
	case d.Size > p.Export.Length:
		return refuse(ErrOffset, "export the whole allocation",
			"the dma-buf has %#x bytes, more than the %#x of %v", d.Size, p.Export.Length, p.Export)
	}
	return nil
}

// whole: the dma-buf begins where the allocation does. It may be longer by
// rounding; more than that is a pool that the allocation lies somewhere in.
func (p Piece) whole(d Descriptor) error {
	if d.Size < p.Export.Length {
		return refuse(ErrShort, "", "the dma-buf has %#x bytes, the allocation %v more", d.Size, p.Export)
	}
	if most, ok := roundUp(p.Export.Length, p.granule); ok && d.Size > most {
		return refuse(ErrOffset, "allocate the memory with an export descriptor",
			"the dma-buf has %#x bytes, and the allocation %v is somewhere in it", d.Size, p.Export)
	}
	return nil
}

// reported: the dma-buf may begin before the exported range, at a block that
// many allocations share, and end anywhere behind. An offset of 0 in such a
// block is either its first allocation or one that the runtime did not fill in.
func (p Piece) reported(d Descriptor) (uint64, error) {
	if d.Offset > d.Size || p.Export.Length > d.Size-d.Offset {
		return 0, refuse(ErrShort, "", "the runtime says offset %#x, but a dma-buf of %#x bytes has less than %#x from there", d.Offset, d.Size, p.Export.Length)
	}
	most, ok := roundUp(p.Export.Length, p.granule)
	if ok && d.Offset == 0 && d.Size > most && !d.Proven {
		return 0, refuse(ErrOffset, "",
			"the runtime says offset 0, but the dma-buf has %#x bytes for %v", d.Size, p.Export)
	}
	return d.Offset, nil
}
