// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"io"
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/layout"
)

// Region is a list of Buffers with a layout, whose sources they are: the MR of ibv_rereg_mr_sg
// and ibv_rereg_mr_interleaved. An operation takes any part of the layout's bytes, as it takes a
// part of a Buffer.
//
// Assigning another layout needs neither a system call nor the NIC. It applies to operations
// that are posted after it; operations under way keep their layout. A read-only Buffer limits
// only operations that change its bytes, and Share.
type Region struct {
	nic  *NIC
	bufs []*Buffer

	mu     sync.RWMutex
	layout layout.Layout
	spaces []lower.Space
	closed bool
}

// NewRegion makes a region of buffers of one NIC, and retains them. Its first layout is all
// their bytes, in order.
func NewRegion(bufs ...*Buffer) (*Region, error) {
	r := &Region{bufs: slices.Clone(bufs)}
	extents := make([]layout.Extent, len(bufs))
	for i, b := range bufs {
		if b == nil {
			r.bufs = bufs[:i]
			return nil, errs.Close(noBuffer("make a region"), r)
		}
		if b.core.nic != bufs[0].core.nic {
			r.bufs = bufs[:i]
			return nil, errs.Close(errNotHere, r)
		}
		if err := b.Retain(); err != nil {
			r.bufs = bufs[:i]
			return nil, errs.Close(err, r)
		}
		extents[i] = layout.Extent{Source: i, Len: b.size}
		r.spaces = append(r.spaces, b.space())
	}
	if len(bufs) == 0 {
		return nil, &failure.Error{Op: "make a region", Detail: "no buffers", Err: failure.ErrRange}
	}
	r.nic = bufs[0].core.nic
	l, err := layout.SG(extents...)
	if err != nil {
		return nil, errs.Close(err, r)
	}
	r.layout = l
	return r, nil
}

// Assign gives the region another layout. If the layout has extents outside the buffers, it
// returns [failure.ErrRange] and keeps the old layout.
func (r *Region) Assign(l layout.Layout) error {
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
		return errs.Closed("region")
	}
	r.layout = l
	return nil
}

// AssignSG assigns the layout that SG makes.
func (r *Region) AssignSG(extents ...layout.Extent) error {
	l, err := layout.SG(extents...)
	if err != nil {
		return err
	}
	return r.Assign(l)
}

// AssignInterleaved assigns the layout that Interleaved makes.
func (r *Region) AssignInterleaved(block layout.Extent, dims ...layout.Dim) error {
	l, err := layout.Interleaved(block, dims...)
	if err != nil {
		return err
	}
	return r.Assign(l)
}

// Buffers returns the buffers: a list that the caller must not change.
func (r *Region) Buffers() []*Buffer { return r.bufs }

// Layout returns the current layout.
func (r *Region) Layout() layout.Layout {
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
		return 0, OutOfRange("read", "local region", off, int64(len(p)), l.Size())
	}
	var end error
	if off = min(off, l.Size()); int64(len(p)) > l.Size()-off {
		p, end = p[:l.Size()-off], io.EOF
	}
	n, err := r.each(l, p, off, (*Buffer).Use, (*core).readAt)
	if err == nil {
		err = end
	}
	return n, err
}

// WriteAt copies bytes into the region by CPU. If p does not fit it returns [failure.ErrRange],
// if p reaches a read-only Buffer EACCES, and in both cases writes nothing.
func (r *Region) WriteAt(p []byte, off int64) (int, error) {
	l, err := r.open()
	if err != nil {
		return 0, err
	}
	if !within(off, int64(len(p)), l.Size()) {
		return 0, OutOfRange("write", "local region", off, int64(len(p)), l.Size())
	}
	return r.each(l, p, off, (*Buffer).useToWrite, (*core).writeAt)
}

// open returns the layout of a region, or os.ErrClosed.
func (r *Region) open() (layout.Layout, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return layout.Layout{}, errs.Closed("region")
	}
	return r.layout, nil
}

// each copies extent after extent. Before that it calls use for every Buffer that the bytes lie
// in: if one call fails, no byte is copied.
func (r *Region) each(l layout.Layout, p []byte, off int64, use func(*Buffer) error, do func(*core, []byte, int64) (int, error)) (n int, err error) {
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
		err = errs.Join(err, b.Release())
	}
	return err
}
