// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"encoding/binary"
	"fmt"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/wire"
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

// MaxWire is the length of the longest encoding that UnmarshalBinary accepts,
// in bytes.
const MaxWire = 256 << 10

// AppendBinary appends the layout's encoding. An interleaved layout takes fewer
// than 256 bytes, whatever the number of its blocks; a list takes a few bytes
// for each extent. An encoding of more than MaxWire bytes is failure.ErrLimit.
func (l Layout) AppendBinary(b []byte) ([]byte, error) {
	if err := l.Err(); err != nil {
		return b, err
	}
	start := len(b)
	b = append(b, layoutVersion)
	if l.root != nil {
		b = l.root.append(b)
	}
	if n := len(b) - start; n > MaxWire {
		return b[:start], &failure.Error{
			Op: "encode a layout", Err: failure.ErrLimit,
			Detail: fmt.Sprintf("%d bytes, of at most %d", n, MaxWire),
			Remedy: "describe it by fewer extents, or by repetitions",
		}
	}
	return b, nil
}

// MarshalBinary returns the layout's encoding, as AppendBinary makes it.
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

// UnmarshalBinary decodes a layout that a peer has encoded, of at most MaxWire
// bytes. It trusts none of the bytes: it makes every check that the constructors
// make, and returns ErrMalformed for a layout that fails one. For each byte of
// data it allocates a bounded number of bytes.
func (l *Layout) UnmarshalBinary(data []byte) error {
	r := wire.NewReader("layout", data)
	if len(data) > MaxWire {
		return r.Fail("%d bytes, of at most %d", len(data), MaxWire)
	}
	if v := r.Byte(); r.Err == nil && v != layoutVersion {
		return r.Fail("version %d; this is version %d", v, layoutVersion)
	}
	var root *node
	if r.Err == nil && len(r.Rest()) > 0 {
		root = readNode(&r, maxDepth)
	}
	if err := r.End(); err != nil {
		return err
	}
	l.root = root
	return nil
}

// readNode reads a node that is at most depth deep.
func readNode(r *wire.Reader, depth int) *node {
	if depth == 0 {
		r.Fail("nested more than %d deep", maxDepth)
		return nil
	}
	n := &node{kind: nodeKind(r.Byte())}
	switch n.kind {
	case kindList:
		readList(r, n)
	case kindWeave:
		n.count = r.Int64()
		n.strands = make([]Strand, r.Count(4))
		for i := range n.strands {
			s := &n.strands[i]
			s.Source, s.Off, s.Len = r.Int(), r.Int64(), r.Int64()
			s.Stride = r.Varint()
		}
	case kindRepeat:
		n.count = r.Int64()
		n.stride = r.Varint()
		n.kids = []*node{readNode(r, depth-1)}
	case kindConcat:
		n.kids = make([]*node, r.Count(6)) // no node is shorter
		for i := range n.kids {
			if n.kids[i] = readNode(r, depth-1); r.Err != nil {
				return nil
			}
		}
	default:
		r.Fail("node kind %d", n.kind)
	}
	if r.Err != nil {
		return nil
	}
	if len(n.extents)+len(n.strands)+len(n.kids) == 0 {
		r.Fail("an empty node")
		return nil
	}
	if err := n.finish(); err != nil {
		r.Err = err
		return nil
	}
	return n
}

// readList reads the extents of a list.
func readList(r *wire.Reader, n *node) {
	flags := r.Byte()
	if flags&^listFlags != 0 {
		r.Fail("list flags %#x", flags)
		return
	}
	least := 1
	if flags&listOneSource == 0 {
		least++
	}
	if flags&listOneLength == 0 {
		least++
	}
	count := r.Uvarint()
	var common Extent
	if flags&listOneSource != 0 {
		common.Source = r.Int()
	}
	if flags&listOneLength != 0 {
		common.Len = r.Int64()
	}
	if r.Err != nil || !r.Fits(count, least) {
		return
	}
	n.extents = make([]Extent, count)
	end := int64(0)
	for i := range n.extents {
		g := common
		if flags&listOneSource == 0 {
			g.Source = r.Int()
		}
		// An offset that overflows comes out negative, or wrong by itself: the
		// checks of finish refuse the former, and bounds the latter.
		g.Off = end + r.Varint()
		if flags&listOneLength == 0 {
			g.Len = r.Int64()
		}
		n.extents[i] = g
		end = g.Off + g.Len
	}
}
