// SPDX-License-Identifier: Apache-2.0

package gpualloc

import "errors"

// pieces are a buffer's segments and how to free them. Once there is one, they must
// not be copied.
type pieces struct {
	segments []Segment
	size     int64 // bytes, of all
	frees    []func() error
	budget   *budget // nil if they were not limited
	drawn    drawing

	// Where the usual one lies: three allocations of Go's make a difference beside
	// one of a small buffer.
	oneSegment [1]Segment
	oneFree    [1]func() error
}

// add takes a segment, and free, if not nil, which gives back what the driver keeps
// beside the dma-buf.
func (p *pieces) add(s Segment, free func() error) {
	if p.segments == nil {
		p.segments, p.frees = p.oneSegment[:0], p.oneFree[:0]
	}
	p.segments = append(p.segments, s)
	p.size += s.Size
	if free != nil {
		p.frees = append(p.frees, free)
	}
}

// closeFDs closes the dma-bufs.
func (p *pieces) closeFDs() error {
	var err error
	for _, s := range p.segments {
		if e := s.Buf.Close(); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// freeMemory gives back what drivers keep beside the dma-bufs, once those are
// closed, and with that what all of it drew.
func (p *pieces) freeMemory() error {
	var err error
	for _, free := range p.frees {
		if e := free(); e != nil {
			err = errors.Join(err, e)
		}
	}
	if err == nil && p.budget != nil {
		p.budget.giveBack(p.drawn)
	}
	return err
}

// free is closeFDs and freeMemory.
func (p *pieces) free() error { return errors.Join(p.closeFDs(), p.freeMemory()) }
