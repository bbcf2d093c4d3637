// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/layout"
)

// Span is local memory of an operation: Length bytes from Offset on, of a Buffer, a Region or
// a View. The zero Span has no bytes.
type Span struct {
	Buf            *Buffer // or
	Region         *Region
	View           *View
	Offset, Length int64

	layout layout.Layout // of the Region; if empty, the Region's layout when an operation takes the Span
}

// All returns all bytes of the Buffer.
func (b *Buffer) All() Span { return Span{Buf: b, Length: b.size} }

// All returns all bytes of the region's current layout. The Span keeps this layout when the
// region is assigned another one.
func (r *Region) All() Span {
	l := r.Layout()
	return Span{Region: r, Length: l.Size(), layout: l}
}

// shape returns the layout through which the Region is seen.
func (s *Span) shape() layout.Layout {
	if s.layout.Size() > 0 {
		return s.layout
	}
	return s.Region.Layout()
}

// RemoteSpan is a peer's memory in an operation: Length bytes from Offset on
// (struct fi_rma_iov).
type RemoteSpan struct {
	Buf            *RemoteBuffer
	Offset, Length int64
}

// All returns all bytes of the remote buffer.
func (r *RemoteBuffer) All() RemoteSpan { return RemoteSpan{Buf: r, Length: r.Size()} }

// Part returns length bytes of the remote buffer from offset on.
func (r *RemoteBuffer) Part(offset, length int64) RemoteSpan {
	return RemoteSpan{Buf: r, Offset: offset, Length: length}
}

// operand is a Span in use: its memory stays until drop.
type operand struct {
	lower.Window
	buf    *Buffer
	region *Region
	view   *View
}

// take resolves a Span. write says that the operation changes the bytes.
func (s Span) take(nic *NIC, op Op, write bool) (o operand, err error) {
	switch {
	case s.Buf != nil && (s.Region != nil || s.View != nil) || s.Region != nil && s.View != nil:
		return o, &dmabuf.Error{Op: op.String(), Detail: "a span of several things", Err: unix.EINVAL}
	case s.Buf != nil:
		o.buf, o.Window = s.Buf, lower.Window{Layout: s.Buf.layout, Spaces: s.Buf.mem, Off: s.Offset, Len: s.Length}
	case s.Region != nil:
		s.Region.mu.RLock()
		defer s.Region.mu.RUnlock()
		if s.Region.closed {
			return o, os.ErrClosed
		}
		shape := s.layout
		if shape.Size() == 0 {
			shape = s.Region.layout
		}
		o.region, o.Window = s.Region, lower.Window{Layout: shape, Spaces: s.Region.spaces, Off: s.Offset, Len: s.Length}
	case s.View != nil:
		o.view, o.Window = s.View, lower.Window{Layout: s.View.layout, Spaces: s.View.spaces, Off: s.Offset, Len: s.Length}
	case s.Length == 0:
		return o, nil
	default:
		return o, &dmabuf.Error{Op: op.String(), Detail: "a span of nothing", Remedy: "set Buf, Region or View", Err: unix.EINVAL}
	}
	size := o.Layout.Size()
	if !within(s.Offset, s.Length, size) {
		return o, outOfRange(op.String(), s.Offset, s.Length, size)
	}
	if write {
		if b := o.findBuffer((*Buffer).ReadOnly); b != nil {
			return operand{}, b.denied(op.String())
		}
	}
	for i, b := range o.bufs() {
		if err = b.usable(nic); err != nil {
			for _, b := range o.bufs()[:i] {
				b.core.unuse()
			}
			return operand{}, err
		}
	}
	return o, nil
}

// usable is use by an endpoint of that NIC.
func (b *Buffer) usable(nic *NIC) error {
	if b.core.nic != nic {
		return errNotHere
	}
	return b.use()
}

// findBuffer returns a Buffer for which is returns true and that has bytes of the operand; nil
// if there is none.
func (o *operand) findBuffer(is func(*Buffer) bool) *Buffer {
	bufs := o.bufs()
	if !slices.ContainsFunc(bufs, is) {
		return nil // the usual case
	}
	i, ok := o.Layout.FindSource(o.Off, o.Len, func(source int) bool { return is(bufs[source]) })
	if !ok {
		return nil
	}
	return bufs[i]
}

func (o *operand) bufs() []*Buffer {
	if o.region != nil {
		return o.region.bufs
	}
	if o.buf != nil {
		return o.buf.self[:]
	}
	if o.view != nil {
		return o.view.bufs
	}
	return nil
}

func (o *operand) drop() {
	for _, b := range o.bufs() {
		b.core.unuseLater()
	}
}

// host reports whether all of the operand is host memory.
func (o *operand) host() bool {
	for _, b := range o.bufs() {
		if !b.core.host() {
			return false
		}
	}
	return true
}

// isStaged reports whether some of the operand is staged.
func (o *operand) isStaged() bool {
	for _, b := range o.bufs() {
		if b.core.staging != nil {
			return true
		}
	}
	return false
}

// staged runs do on the staging buffers of the first n bytes of the operand.
func (o *operand) staged(n int64, do func(s *stagingBuffer, off, length int64) error) error {
	if !o.isStaged() {
		return nil
	}
	bufs := o.bufs()
	for g := range o.Layout.Part(o.Off, min(n, o.Len)) {
		b := bufs[g.Source]
		if b.core.staging == nil {
			continue
		}
		if err := do(b.core.staging, b.off+g.Off, g.Len); err != nil {
			return err
		}
	}
	return nil
}

// copy moves bytes between p and the operand, by CPU. It does not check the Buffers: they may
// have been released since take, which has checked them and keeps their memory.
func (o *operand) copy(p []byte, do func(c *core, p []byte, off int64) (int, error)) error {
	bufs, n := o.bufs(), int64(0)
	for g := range o.Layout.Part(o.Off, min(int64(len(p)), o.Len)) {
		b := bufs[g.Source]
		if _, err := do(b.core, p[n:n+g.Len], b.off+g.Off); err != nil {
			return err
		}
		n += g.Len
	}
	return nil
}

// check checks a remote span as far as that is possible without the peer's NIC.
func (r *RemoteSpan) check(op Op, need ibvfd.Access) error {
	switch {
	case r.Buf == nil && r.Length == 0 && r.Offset == 0:
		return nil
	case r.Buf == nil:
		return &dmabuf.Error{Op: op.String(), Detail: "a remote span of nothing", Remedy: "set Buf", Err: unix.EINVAL}
	case !within(r.Offset, r.Length, r.Buf.Size()):
		e := outOfRange(op.String(), r.Offset, r.Length, r.Buf.Size())
		e.Device = fmt.Sprintf("remote buffer %x", r.Buf.id)
		return e
	case r.Buf.access&need != need:
		return &dmabuf.Error{
			Op: op.String(), Device: fmt.Sprintf("remote buffer %x", r.Buf.id), Err: unix.EACCES,
			Detail: fmt.Sprintf("it allows %v; this takes %v", r.Buf.access, need), Remedy: "the peer shares it with that access",
		}
	}
	return nil
}

func (r *RemoteSpan) window() lower.Window {
	return lower.Window{Layout: r.Buf.layout, Spaces: r.Buf.spaces, Off: r.Offset, Len: r.Length}
}
