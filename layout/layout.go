// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// Layout takes bytes of one or more sources, in an order, as one run of bytes. It never
// changes, so that any number of goroutines may use it. The zero Layout has no bytes.
// Source numbers are 0 to 65,535, and Repeat and Concat may be nested 8 deep at most;
// otherwise the functions that make layouts return failure.ErrRange.
//
// A layout has the numbers of its sources. The Views of package gpurdma bind the numbers
// to memory, and check that the memory has the bytes. Blocks may overlap, so that a layout
// takes a byte more than once; after a transfer into such a layout the value of this byte
// is undefined.
type Layout struct{ root *node }

// Extent is Len bytes of a source from Off on.
type Extent struct {
	Source   int
	Off, Len int64
}

// Dim is a dimension: Count repetitions, each Stride bytes after the one
// before. Stride may be negative or zero.
type Dim struct{ Count, Stride int64 }

// Strand is an extent for RoundRobin, which takes it again Stride bytes further on in each
// turn.
type Strand struct {
	Extent
	Stride int64
}

// Invalid returns a layout without bytes that carries an error: Err, Check, Repeat, Concat
// and MarshalBinary return the error. So a program need not test for an error each time
// that it makes a layout.
func Invalid(err error) Layout { return Layout{&node{kind: kindList, err: err}} }

// Err returns the error that Invalid was given; nil for other layouts.
func (l Layout) Err() error {
	if l.root == nil {
		return nil
	}
	return l.root.err
}

// ErrMalformed means that the bytes that a peer has sent are no layout.
var ErrMalformed = wire.ErrMalformed

// The limits of a layout. They bound the memory and the time that a peer's layout costs.
const (
	maxSources = 1 << 16
	maxDepth   = 8
)

// SG returns a layout of extents, one after the other: the composite region of
// ibv_rereg_mr_sg. It copies the list. It returns failure.ErrRange if an extent has a
// negative offset, source or length, or no bytes.
func SG(extents ...Extent) (Layout, error) {
	n := &node{kind: kindList, extents: slices.Clone(extents)}
	return n.layout()
}

// Contiguous returns a layout of one extent of source 0.
func Contiguous(off, length int64) (Layout, error) {
	return Interleaved(Extent{Off: off, Len: length})
}

// Interleaved returns a layout of a block that is repeated in any number of dimensions,
// the outermost first: the base, block, stride and repeat of ibv_rereg_mr_interleaved. For
// the column of a matrix, block is the column's first cell, and the dimension is Dim{rows,
// bytes of a row}.
func Interleaved(block Extent, dims ...Dim) (Layout, error) {
	n := &node{kind: kindWeave, count: 1, strands: []Strand{{Extent: block}}}
	if err := n.finish(); err != nil {
		return Layout{}, err
	}
	l := Layout{n}
	for _, d := range slices.Backward(dims) {
		var err error
		if l, err = l.Repeat(d.Count, d.Stride); err != nil {
			return Layout{}, err
		}
	}
	return l, nil
}

// RoundRobin returns a layout that takes a block of each strand in turn, count times, as
// mlx5dv_wr_mr_interleaved does: such as payload from one buffer, and after each block a
// checksum from another buffer.
func RoundRobin(count int64, strands ...Strand) (Layout, error) {
	n := &node{kind: kindWeave, count: count, strands: slices.Clone(strands)}
	return n.layout()
}

// Repeat returns a layout that takes this one count times, each time stride bytes further
// on in all its sources. It returns failure.ErrRange for the zero Layout, and for a count
// or a stride that leads out of the range of int64 or below offset 0.
func (l Layout) Repeat(count, stride int64) (Layout, error) {
	if l.root == nil {
		return Layout{}, badLayout("it repeats nothing")
	}
	if l.root.err != nil {
		return l, l.root.err
	}
	if count == 1 {
		return l, nil
	}
	if l.root.kind == kindWeave && l.root.count == 1 && len(l.root.strands) == 1 {
		s := l.root.strands[0]
		s.Stride = stride
		return (&node{kind: kindWeave, count: count, strands: []Strand{s}}).layout()
	}
	return (&node{kind: kindRepeat, count: count, stride: stride, kids: []*node{l.root}}).layout()
}

// Concat returns the layouts one after the other, as one layout. More than 2^63-1 bytes
// are failure.ErrRange.
func Concat(layouts ...Layout) (Layout, error) {
	n := &node{kind: kindConcat}
	for _, l := range layouts {
		if err := l.Err(); err != nil {
			return l, err
		}
		if l.root != nil {
			n.kids = append(n.kids, l.root)
		}
	}
	switch len(n.kids) {
	case 0:
		return Layout{}, nil
	case 1:
		return Layout{n.kids[0]}, nil
	}
	return n.layout()
}

// Size returns the number of bytes that the layout takes.
func (l Layout) Size() int64 {
	if l.root == nil {
		return 0
	}
	return l.root.size
}

// Blocks returns the number of blocks that the layout was made with. Extents may return
// fewer, because it merges neighbours.
func (l Layout) Blocks() int64 {
	if l.root == nil {
		return 0
	}
	return l.root.blocks
}

// Single returns the extent of a layout that was made with one block; ok is false for
// other layouts.
func (l Layout) Single() (_ Extent, ok bool) {
	if l.root == nil || l.root.blocks != 1 {
		return Extent{}, false
	}
	b := l.root.bounds[0]
	return Extent{Source: b.source, Off: b.low, Len: l.root.size}, true
}

// Sources returns the highest source number plus one; 0 for the zero Layout.
func (l Layout) Sources() int {
	if l.root == nil {
		return 0
	}
	return l.root.bounds[len(l.root.bounds)-1].source + 1
}

// DistinctSources returns the number of sources of which the layout takes bytes.
func (l Layout) DistinctSources() int {
	if l.root == nil {
		return 0
	}
	return len(l.root.bounds)
}

// Bounds returns the smallest extent of a source that has all bytes that the layout takes
// of this source. ok is false if the layout takes none.
func (l Layout) Bounds(source int) (_ Extent, ok bool) {
	if l.root == nil {
		return Extent{}, false
	}
	i, ok := slices.BinarySearchFunc(l.root.bounds, source, func(e bounds, s int) int { return cmp.Compare(e.source, s) })
	if !ok {
		return Extent{}, false
	}
	e := l.root.bounds[i]
	return Extent{Source: source, Off: e.low, Len: e.high - e.low}, true
}

// Stride describes a layout that repeats one block: it returns the block at the lowest
// offset, and a distance such that each repetition is a multiple of the distance away from
// it. The distance is at least the block's length. If there is no such distance, or the
// layout has other blocks, ok is false.
func (l Layout) Stride() (block Extent, stride int64, ok bool) {
	if l.root == nil {
		return Extent{}, 0, false
	}
	length, stride := l.root.period()
	if length == 0 || stride < length {
		return Extent{}, 0, false
	}
	b := l.root.bounds[0]
	return Extent{Source: b.source, Off: b.low, Len: length}, stride, true
}

// Extents yields the layout's bytes in order. It merges extents that follow one another in
// a source.
func (l Layout) Extents() iter.Seq[Extent] { return l.Part(0, l.Size()) }

// Part yields the extents of length bytes of the layout's run from off on, merged as by
// Extents. It leaves out bytes beyond the end of the run.
func (l Layout) Part(off, length int64) iter.Seq[Extent] {
	return func(yield func(Extent) bool) {
		var c Cursor
		if off < 0 || off >= l.Size() || length <= 0 {
			return
		}
		c.Start(l, off, min(length, l.Size()-off))
		r, ok := c.Next()
		for ok {
			next, more := c.Next()
			if more && next.Source == r.Source && next.Off == r.Off+r.Len {
				r.Len += next.Len
				continue
			}
			if !yield(r) {
				return
			}
			r, ok = next, more
		}
	}
}

// Check returns [failure.ErrRange] unless every source has all bytes that the layout takes
// of it. sizes returns the size of a source, or false if there is no such source. op names
// the operation in the error.
func (l Layout) Check(op string, sizes func(source int) (int64, bool)) error {
	if l.root == nil {
		return nil
	}
	if l.root.err != nil {
		return l.root.err
	}
	for _, e := range l.root.bounds {
		size, ok := sizes(e.source)
		if !ok {
			return &failure.Error{Op: op, Detail: fmt.Sprintf("the layout takes bytes of source %d, which is not there", e.source), Err: failure.ErrRange}
		}
		if e.high > size {
			return &failure.Error{
				Op: op, Err: failure.ErrRange,
				Detail: fmt.Sprintf("the layout takes bytes up to %d of source %d, which has %d", e.high, e.source, size),
			}
		}
	}
	return nil
}

// FindSource finds a source for which want returns true. It looks among the sources of the
// length bytes of the layout's run from off on. ok is false if there is none. The caller
// must have checked that the layout has these bytes. The time grows with the layout's
// description, not with the number of its blocks.
func (l Layout) FindSource(off, length int64, want func(source int) bool) (source int, ok bool) {
	source = l.root.source(off, length, want)
	return source, source >= 0
}

// Weight returns about how many bytes of memory the layout's description takes. They do
// not grow with the number of blocks of an interleaved layout.
func (l Layout) Weight() int {
	if l.root == nil {
		return 0
	}
	return l.root.weight()
}

func badLayout(format string, args ...any) error {
	return &failure.Error{Op: "make a layout", Detail: fmt.Sprintf(format, args...), Err: failure.ErrRange}
}
