// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"io"
	"os"
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/lower"
)

// Region is a list of Buffers seen through a layout, whose sources they are: the MR of
// ibv_rereg_mr_sg and ibv_rereg_mr_interleaved. Operations take any part of its run, in the
// place of a Buffer.
//
// Assigning another layout needs neither a system call nor the NIC. It applies to operations
// that are posted after it; operations under way keep their layout. A read-only Buffer limits
// only operations that change its bytes, and Share.
type Region struct {
	nic  *NIC
	bufs []*Buffer

	mu     sync.RWMutex
	layout Layout
	spaces []lower.Space
	closed bool
}

// NewRegion makes a region of buffers of one NIC, and retains them. Its first layout is all
// their bytes, in order.
func NewRegion(bufs ...*Buffer) (*Region, error) {
	r := &Region{bufs: slices.Clone(bufs)}
	extents := make([]Extent, len(bufs))
	for i, b := range bufs {
		if b == nil {
			r.bufs = bufs[:i]
			return nil, joinClose(noBuffer("make a region"), r)
		}
		if b.core.nic != bufs[0].core.nic {
			r.bufs = bufs[:i]
			return nil, joinClose(errNotHere, r)
		}
		if err := b.Retain(); err != nil {
			r.bufs = bufs[:i]
			return nil, joinClose(err, r)
		}
		extents[i] = Extent{Source: i, Len: b.size}
		r.spaces = append(r.spaces, b.space())
	}
	if len(bufs) == 0 {
		return nil, &dmabuf.Error{Op: "make a region", Detail: "no buffers", Err: dmabuf.ErrRange}
	}
	r.nic = bufs[0].core.nic
	l, err := SG(extents...)
	if err != nil {
		return nil, joinClose(err, r)
	}
	r.layout = l
	return r, nil
}

// space returns the Buffer's memory under local keys: a part of the core's.
func (b *Buffer) space() lower.Space {
	if b.off == 0 && b.size == b.core.size {
		return b.core.local
	}
	var m Memory
	start := int64(0)
	for _, p := range b.core.local.Memory {
		low, high := max(start, b.off), min(start+p.Length, b.off+b.size)
		if low < high {
			m = append(m, Piece{Addr: p.Addr + uint64(low-start), Length: high - low, Key: p.Key})
		}
		start += p.Length
	}
	return lower.NewSpace(m)
}

// Assign gives the region another layout. If the layout has extents outside the buffers, it
// returns [dmabuf.ErrRange] and keeps the old layout.
func (r *Region) Assign(l Layout) error {
	err := l.Check("assign a layout", func(i int) (int64, bool) {
		if i >= len(r.bufs) {
			return 0, false
		}
		return r.bufs[i].size, true
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return os.ErrClosed
	}
	r.layout = l
	return nil
}

// AssignSG assigns the layout that SG makes.
func (r *Region) AssignSG(extents ...Extent) error {
	l, err := SG(extents...)
	if err != nil {
		return err
	}
	return r.Assign(l)
}

// AssignInterleaved assigns the layout that Interleaved makes.
func (r *Region) AssignInterleaved(block Extent, dims ...Dim) error {
	l, err := Interleaved(block, dims...)
	if err != nil {
		return err
	}
	return r.Assign(l)
}

// Layout returns the current layout.
func (r *Region) Layout() Layout {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.layout
}

// Size returns the number of bytes of the layout.
func (r *Region) Size() int64 { return r.Layout().Size() }

// ReadAt copies bytes out of the region by CPU. It follows io.ReaderAt; off
// counts in the layout's run.
func (r *Region) ReadAt(p []byte, off int64) (int, error) {
	l, err := r.open()
	if err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, outOfRange("read", off, int64(len(p)), l.Size())
	}
	var end error
	if off = min(off, l.Size()); int64(len(p)) > l.Size()-off {
		p, end = p[:l.Size()-off], io.EOF
	}
	n, err := r.each(l, p, off, (*Buffer).use, (*core).readAt)
	if err == nil {
		err = end
	}
	return n, err
}

// WriteAt copies bytes into the region by CPU. If p does not fit it returns [dmabuf.ErrRange],
// if p reaches a read-only Buffer EACCES, and in both cases writes nothing.
func (r *Region) WriteAt(p []byte, off int64) (int, error) {
	l, err := r.open()
	if err != nil {
		return 0, err
	}
	if !within(off, int64(len(p)), l.Size()) {
		return 0, outOfRange("write", off, int64(len(p)), l.Size())
	}
	return r.each(l, p, off, (*Buffer).useToWrite, (*core).writeAt)
}

// open returns the layout of a region, or os.ErrClosed.
func (r *Region) open() (Layout, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return Layout{}, os.ErrClosed
	}
	return r.layout, nil
}

// each copies extent after extent. Before that it takes every Buffer that it reaches into use:
// if that fails for one, no byte moves.
func (r *Region) each(l Layout, p []byte, off int64, use func(*Buffer) error, do func(*core, []byte, int64) (int, error)) (n int, err error) {
	used := make([]bool, len(r.bufs))
	defer func() {
		for i, b := range r.bufs {
			if used[i] {
				b.core.unuse()
			}
		}
	}()
	for g := range l.Part(off, int64(len(p))) {
		if used[g.Source] {
			continue
		}
		if err := use(r.bufs[g.Source]); err != nil {
			return 0, err
		}
		used[g.Source] = true
	}
	for g := range l.Part(off, int64(len(p))) {
		b := r.bufs[g.Source]
		k, err := do(b.core, p[n:n+int(g.Len)], b.off+g.Off)
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close releases the buffers. Operations under way keep them. A second Close does nothing.
func (r *Region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	var err error
	for _, b := range r.bufs {
		err = joined(err, b.Release())
	}
	return err
}
