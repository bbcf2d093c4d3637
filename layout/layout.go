// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/wire"
)

// Layout is a shape: it takes bytes of one or more sources, in an order, for
// one run of bytes. It is a value that never changes and that any number of
// goroutines may use; the zero Layout has no bytes.
//
// A layout knows its sources by number only. Regions and remote buffers of
// package gpurdma bind the numbers to memory, and check its bounds. Blocks may
// overlap, and a layout may take a byte more than once; a transfer into a layout
// that takes one byte twice leaves it undefined.
type Layout struct{ root *node }

// Extent is Len bytes of a source from Off on.
type Extent struct {
	Source   int
	Off, Len int64
}

// Dim is a dimension: Count repetitions, each Stride bytes after the one
// before. Stride may be negative or zero.
type Dim struct{ Count, Stride int64 }

// Strand is an extent that moves on by Stride bytes each time its turn comes.
type Strand struct {
	Extent
	Stride int64
}

// Invalid is a layout without bytes that carries an error: Check, Repeat, Concat and
// MarshalBinary return it. Programs that make layouts of numbers known to be valid can
// so do without an error at each step.
func Invalid(err error) Layout { return Layout{&node{kind: kindList, err: err}} }

// Err is the error that [Invalid] was given, or nil.
func (l Layout) Err() error {
	if l.root == nil {
		return nil
	}
	return l.root.err
}

// ErrMalformed: bytes that a peer sent are no layout.
var ErrMalformed = wire.ErrMalformed

// The limits of a layout. They bound the memory and the time that a peer's layout costs.
const (
	maxSources = 1 << 16
	maxDepth   = 8
)

// SG is a list of extents, one after the other: the composite region of
// ibv_rereg_mr_sg. It copies the list.
func SG(extents ...Extent) (Layout, error) {
	n := &node{kind: kindList, extents: slices.Clone(extents)}
	return n.layout()
}

// Contiguous is one extent of source 0.
func Contiguous(off, length int64) (Layout, error) {
	return Interleaved(Extent{Off: off, Len: length})
}

// Interleaved is a block repeated in any number of dimensions, the outermost
// first: the base, block, stride and repeat of ibv_rereg_mr_interleaved. The
// column of a matrix is its topmost cell and Dim{rows, bytes of a row}.
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

// RoundRobin takes a block of each strand in turn, count times: what
// mlx5dv_wr_mr_interleaved describes, such as payload from one buffer and a
// checksum from another after each block.
func RoundRobin(count int64, strands ...Strand) (Layout, error) {
	n := &node{kind: kindWeave, count: count, strands: slices.Clone(strands)}
	return n.layout()
}

// Repeat is the layout count times, each stride bytes further on in all its
// sources.
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

// Concat is layouts one after the other.
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

// Size is how many bytes the layout takes.
func (l Layout) Size() int64 {
	if l.root == nil {
		return 0
	}
	return l.root.size
}

// Blocks is how many blocks the layout was described with; neighbours may
// merge to fewer.
func (l Layout) Blocks() int64 {
	if l.root == nil {
		return 0
	}
	return l.root.blocks
}

// Single returns the extent of a layout that was described with one block; ok is false for
// others.
func (l Layout) Single() (_ Extent, ok bool) {
	if l.root == nil || l.root.blocks != 1 {
		return Extent{}, false
	}
	b := l.root.bounds[0]
	return Extent{Source: b.source, Off: b.low, Len: l.root.size}, true
}

// Sources is one more than the highest source number.
func (l Layout) Sources() int {
	if l.root == nil {
		return 0
	}
	return l.root.bounds[len(l.root.bounds)-1].source + 1
}

// DistinctSources is how many sources the layout takes bytes of.
func (l Layout) DistinctSources() int {
	if l.root == nil {
		return 0
	}
	return len(l.root.bounds)
}

// Bounds is the smallest extent of a source that holds all the bytes that the
// layout takes of it. ok is false if the layout takes none.
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

// Stride returns the lowest block of a layout that repeats one block, and a distance of which all
// repetitions are multiples. The distance is at least the block's length; if there is no such one, or
// the layout takes other blocks as well, ok is false.
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

// Extents are the layout's bytes in order, neighbours merged.
func (l Layout) Extents() iter.Seq[Extent] { return l.Part(0, l.Size()) }

// Part are the extents of length bytes of the layout's run from off on. Bytes
// beyond its end are left out.
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

// Check returns [dmabuf.ErrRange] unless every source has all the bytes that the
// layout takes of it. sizes returns the size of a source, or false if there is no such
// source. op is the operation that the error names.
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
			return &dmabuf.Error{Op: op, Detail: fmt.Sprintf("the layout takes bytes of source %d, which is not there", e.source), Err: dmabuf.ErrRange}
		}
		if e.high > size {
			return &dmabuf.Error{
				Op: op, Err: dmabuf.ErrRange,
				Detail: fmt.Sprintf("the layout takes bytes up to %d of source %d, which has %d", e.high, e.source, size),
			}
		}
	}
	return nil
}

// FindSource finds a source for which want returns true, among the sources that the
// layout takes the length bytes of its run from off on of. ok is false if there is none.
// The caller has checked that the layout has these bytes. The time that it takes grows
// with the layout's description, not with the number of its blocks.
func (l Layout) FindSource(off, length int64, want func(source int) bool) (source int, ok bool) {
	source = l.root.source(off, length, want)
	return source, source >= 0
}

// Weight is about how many bytes of memory the layout itself takes, however many
// blocks it describes.
func (l Layout) Weight() int {
	if l.root == nil {
		return 0
	}
	return l.root.weight()
}

func badLayout(format string, args ...any) error {
	return &dmabuf.Error{Op: "make a layout", Detail: fmt.Sprintf(format, args...), Err: dmabuf.ErrRange}
}
