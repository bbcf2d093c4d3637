// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"sync"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/layout"
)

// Reading is memory whose bytes the CPU reads, through a layout. A GPU's memory is read by its
// Source. It is valid as long as its Operand is in use.
type Reading struct {
	bufs   []*Buffer
	base   int64 // of source 0 in its Buffer
	layout layout.Layout
	off    int64
	ctx    context.Context // ends Each; may be nil
}

// Reading returns the operand's bytes.
func (o *Operand) Reading() *Reading {
	return &Reading{bufs: o.bufs(), layout: o.Layout, off: o.Off}
}

// scratch has buffers for bytes that are copied out of memory.
var scratch = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// A piece of a GPU's memory of at most smallPiece bytes is read together with the bytes after it, of
// nearPieces bytes in all.
const (
	smallPiece = 4 << 10
	nearPieces = 16 << 10
)

// Each calls f with the n bytes from off on, in order, in parts. f must not keep them. The Buffers
// may have been released since the Operand was taken, which keeps their memory.
func (r *Reading) Each(off, n int64, f func(p []byte)) error {
	var buf *[64 << 10]byte
	var have []byte // bytes of a Buffer that were read together with a small piece
	var of *Buffer
	var at int64 // where they begin in the core's memory
	pieces := 0
	for x := range r.layout.Part(r.off+off, n) {
		if pieces++; pieces%piecesBetween == 0 {
			if err := r.ended(); err != nil {
				return err
			}
		}
		b := r.bufs[x.Source]
		c, start := b.core, b.off+x.Off
		if x.Source == 0 {
			start += r.base
		}
		if c.source() == nil {
			f(c.hostMem.Bytes()[start : start+x.Len])
			continue
		}
		if buf == nil {
			buf = scratch.Get().(*[64 << 10]byte)
			defer scratch.Put(buf)
		}
		if err := r.ended(); err != nil {
			return err
		}
		if c.staging == nil && x.Len <= smallPiece {
			if of != b || start < at || start+x.Len > at+int64(len(have)) {
				of, at, have = b, start, buf[:min(nearPieces, b.off+b.size-start)]
				if _, err := c.readAt(have, start); err != nil {
					return err
				}
			}
			f(have[start-at:][:x.Len])
			continue
		}
		of = nil
		for left := x.Len; left > 0; {
			p := buf[:min(left, int64(len(buf)))]
			if _, err := c.readAt(p, start); err != nil {
				return err
			}
			f(p)
			if err := r.ended(); err != nil {
				return err
			}
			start, left = start+int64(len(p)), left-int64(len(p))
		}
	}
	return nil
}

// piecesBetween is the number of pieces of host memory between two looks at the context.
const piecesBetween = 1024

// ended returns the error of a context that has ended.
func (r *Reading) ended() error {
	if r.ctx == nil {
		return nil
	}
	return errs.Ended(r.ctx)
}

// Given is memory that a peer was given, as it is on this side. It is in use until Drop.
type Given struct {
	o     Operand
	base  int64
	shape layout.Layout // that it was given with
	sizes []int64       // of the sources that the peer knows
}

// Given takes memory that a peer was given into use.
func (s Span) Given(nic *NIC) (*Given, error) {
	o, err := s.Use(nic, "compare the bytes of a write", false)
	if err != nil {
		return nil, err
	}
	g := &Given{o: o, shape: o.Layout}
	if s.Buf != nil { // the peer knows the span only
		g.base, g.sizes = s.Offset, []int64{s.Length}
		g.shape, err = layout.Contiguous(0, s.Length)
		return g, err
	}
	for _, b := range o.bufs() {
		g.sizes = append(g.sizes, b.size)
	}
	return g, nil
}

// Drop ends the use.
func (g *Given) Drop() { g.o.Drop() }

// Size returns the number of bytes that the peer can reach.
func (g *Given) Size() (n int64) {
	for _, size := range g.sizes {
		n += size
	}
	return n
}

// Reading returns n bytes from off on of the memory as the peer sees it: through a layout, or
// through the one that it was given with if l is nil. All of these come from the peer, so ctx bounds the
// time that the pieces of the layout take.
func (g *Given) Reading(ctx context.Context, l *layout.Layout, off, n int64) (*Reading, error) {
	shape := g.shape
	if l != nil {
		shape = *l
		err := shape.Check("compare the bytes of a write", func(i int) (int64, bool) {
			if i >= len(g.sizes) {
				return 0, false
			}
			return g.sizes[i], true
		})
		if err != nil {
			return nil, err
		}
	}
	if !within(off, n, shape.Size()) {
		return nil, OutOfRange("compare the bytes of a write", "memory of this side", off, n, shape.Size())
	}
	return &Reading{bufs: g.o.bufs(), base: g.base, layout: shape, off: off, ctx: ctx}, nil
}

// Flush is Buffer.Flush of a GPU's memory that is not staged: Reading sees staged bytes without it.
func (g *Given) Flush(ctx context.Context) error {
	for _, b := range g.o.bufs() {
		if !b.core.gpu() || b.core.staging != nil {
			continue
		}
		if err := b.Flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Push brings what the NIC has written to a GPU's memory that is not staged into the memory. Host memory
// has it when the queue pairs that have written it are destroyed.
func (g *Given) Push(ctx context.Context) error {
	for _, b := range g.o.bufs() {
		if b.core.staging != nil {
			continue
		}
		b.core.moving.RLock()
		err := b.core.push(ctx)
		b.core.moving.RUnlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// OwnLayout returns the layout, and whether the peer may not know that this side uses it.
func (r *RemoteBuffer) OwnLayout() (l layout.Layout, own bool) {
	// A descriptor without a name may have been encoded from a View.
	return r.layout, r.viewed || r.name == ""
}

// Memory returns the number of bytes of the memory, also of those that the layout leaves out.
func (r *RemoteBuffer) Memory() (n int64) {
	for i := range r.spaces {
		n += r.spaces[i].Memory.Size()
	}
	return n
}
