// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"encoding/binary"
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// A layout on the wire: a version, then the tree from the root down, numbers as
// uvarints, those that may be negative as varints. A node is a tag and
//
//	list    flags, count, [source], [length], then of each extent
//	        [source], its offset less the end of the one before, [length]
//	weave   count, strands, of each source, offset, length, stride
//	repeat  count, stride, a node
//	concat  count, nodes
//
// A list's flags say which of source and length all extents share: these come
// once.
const layoutVersion = 1

const (
	listOneSource = 1 << iota
	listOneLength
	listFlags = listOneSource | listOneLength
)

// MaxLayoutWire is the longest layout that UnmarshalBinary takes, in bytes.
const MaxLayoutWire = 256 << 10

// AppendBinary appends the layout's encoding. An interleaved layout takes fewer
// than 256 bytes, whatever the number of its blocks; a list takes some for each
// range.
func (l Layout) AppendBinary(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, layoutVersion)
	if l.root != nil {
		b = l.root.append(b)
	}
	if n := len(b) - start; n > MaxLayoutWire {
		return b[:start], &dmabuf.Error{
			Op: "encode a layout", Err: dmabuf.ErrLimit,
			Detail: fmt.Sprintf("%d bytes, of at most %d", n, MaxLayoutWire),
			Remedy: "describe it by fewer extents, or by repetitions",
		}
	}
	return b, nil
}

// MarshalBinary is AppendBinary to nothing.
func (l Layout) MarshalBinary() ([]byte, error) { return l.AppendBinary(nil) }

func (n *node) append(b []byte) []byte {
	b = append(b, byte(n.kind))
	switch n.kind {
	case kindList:
		return n.appendList(b)
	case kindWeave:
		b = binary.AppendUvarint(b, uint64(n.count))
		b = binary.AppendUvarint(b, uint64(len(n.strands)))
		for _, s := range n.strands {
			b = binary.AppendUvarint(b, uint64(s.Source))
			b = binary.AppendUvarint(b, uint64(s.Off))
			b = binary.AppendUvarint(b, uint64(s.Len))
			b = binary.AppendVarint(b, s.Stride)
		}
		return b
	case kindRepeat:
		b = binary.AppendUvarint(b, uint64(n.count))
		b = binary.AppendVarint(b, n.stride)
	case kindConcat:
		b = binary.AppendUvarint(b, uint64(len(n.kids)))
	}
	for _, kid := range n.kids {
		b = kid.append(b)
	}
	return b
}

func (n *node) appendList(b []byte) []byte {
	first, flags := n.extents[0], byte(listFlags)
	for _, r := range n.extents {
		if r.Source != first.Source {
			flags &^= listOneSource
		}
		if r.Len != first.Len {
			flags &^= listOneLength
		}
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(len(n.extents)))
	if flags&listOneSource != 0 {
		b = binary.AppendUvarint(b, uint64(first.Source))
	}
	if flags&listOneLength != 0 {
		b = binary.AppendUvarint(b, uint64(first.Len))
	}
	end := int64(0)
	for _, r := range n.extents {
		if flags&listOneSource == 0 {
			b = binary.AppendUvarint(b, uint64(r.Source))
		}
		b = binary.AppendVarint(b, r.Off-end)
		if flags&listOneLength == 0 {
			b = binary.AppendUvarint(b, uint64(r.Len))
		}
		end = r.Off + r.Len
	}
	return b
}

// UnmarshalBinary decodes what a peer sent and takes nothing on trust: a layout
// that it accepts has passed every check that the constructors make, and it
// allocates no more than some bytes for each byte that it was given.
func (l *Layout) UnmarshalBinary(data []byte) error {
	r := reader{what: "layout", b: data}
	if len(data) > MaxLayoutWire {
		return r.bad("%d bytes, of at most %d", len(data), MaxLayoutWire)
	}
	if v := r.byte(); r.err == nil && v != layoutVersion {
		return r.bad("version %d; this is version %d", v, layoutVersion)
	}
	var root *node
	if r.err == nil && len(r.b) > 0 {
		root = r.node(maxDepth)
	}
	if err := r.end(); err != nil {
		return err
	}
	l.root = root
	return nil
}

// node reads a node that is at most depth deep.
func (r *reader) node(depth int) *node {
	if depth == 0 {
		r.bad("nested more than %d deep", maxDepth)
		return nil
	}
	n := &node{kind: nodeKind(r.byte())}
	switch n.kind {
	case kindList:
		r.list(n)
	case kindWeave:
		n.count = r.int64()
		n.strands = make([]Strand, r.count(4))
		for i := range n.strands {
			s := &n.strands[i]
			s.Source, s.Off, s.Len = r.int(), r.int64(), r.int64()
			s.Stride = r.varint()
		}
	case kindRepeat:
		n.count = r.int64()
		n.stride = r.varint()
		n.kids = []*node{r.node(depth - 1)}
	case kindConcat:
		n.kids = make([]*node, r.count(6)) // no node is shorter
		for i := range n.kids {
			if n.kids[i] = r.node(depth - 1); r.err != nil {
				return nil
			}
		}
	default:
		r.bad("node kind %d", n.kind)
	}
	if r.err != nil {
		return nil
	}
	if len(n.extents)+len(n.strands)+len(n.kids) == 0 {
		r.bad("an empty node")
		return nil
	}
	if err := n.finish(); err != nil {
		r.err = err
		return nil
	}
	return n
}

func (r *reader) list(n *node) {
	flags := r.byte()
	if flags&^listFlags != 0 {
		r.bad("list flags %#x", flags)
		return
	}
	least := 1
	if flags&listOneSource == 0 {
		least++
	}
	if flags&listOneLength == 0 {
		least++
	}
	count := r.uvarint()
	var common Extent
	if flags&listOneSource != 0 {
		common.Source = r.int()
	}
	if flags&listOneLength != 0 {
		common.Len = r.int64()
	}
	if r.err != nil || !r.fits(count, least) {
		return
	}
	n.extents = make([]Extent, count)
	end := int64(0)
	for i := range n.extents {
		g := common
		if flags&listOneSource == 0 {
			g.Source = r.int()
		}
		// An offset that overflows comes out negative, or wrong by itself: the
		// checks of finish refuse the former, and bounds the latter.
		g.Off = end + r.varint()
		if flags&listOneLength == 0 {
			g.Len = r.int64()
		}
		n.extents[i] = g
		end = g.Off + g.Len
	}
}
