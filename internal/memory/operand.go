// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/lower"
	"golang.org/x/sys/unix"
)

// Operand is a Span in use: its memory stays until drop.
type Operand struct {
	lower.Window
	buf  *Buffer
	view *View
}

// Use resolves a Span. write says that the operation changes the bytes.
func (s Span) Use(nic *NIC, op string, write bool) (o Operand, err error) {
	switch {
	case s.Buf != nil && s.View != nil:
		return o, &failure.Error{Op: op, Detail: "the span names a buffer and a view", Remedy: "name one of them", Err: unix.EINVAL}
	case s.Buf != nil:
		o.buf, o.Window = s.Buf, lower.Window{Layout: s.Buf.layout, Spaces: s.Buf.mem, Off: s.Offset, Len: s.Length}
	case s.View != nil:
		o.view, o.Window = s.View, lower.Window{Layout: s.View.layout, Spaces: s.View.spaces, Off: s.Offset, Len: s.Length}
	case s.Length == 0:
		return o, nil
	default:
		return o, &failure.Error{Op: op, Detail: fmt.Sprintf("a span of %d bytes names no local memory", s.Length), Remedy: "name a buffer or a view", Err: unix.EINVAL}
	}
	size := o.Layout.Size()
	if !within(s.Offset, s.Length, size) {
		return o, OutOfRange(op, s.where(), s.Offset, s.Length, size)
	}
	if write {
		if b := o.findBuffer((*Buffer).ReadOnly); b != nil {
			return Operand{}, b.denied(op)
		}
	}
	for i, b := range o.bufs() {
		if err = b.usable(nic); err != nil {
			for _, b := range o.bufs()[:i] {
				b.Unuse()
			}
			return Operand{}, err
		}
	}
	return o, nil
}

// findBuffer returns a Buffer for which is returns true and that has bytes of the operand; nil
// if there is none.
func (o *Operand) findBuffer(is func(*Buffer) bool) *Buffer {
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

func (o *Operand) bufs() []*Buffer {
	if o.buf != nil {
		return o.buf.self[:]
	}
	if o.view != nil {
		return o.view.bufs
	}
	return nil
}

// Drop ends the use of the memory. The caller may hold a lock.
func (o *Operand) Drop() {
	for _, b := range o.bufs() {
		b.UnuseLater()
	}
}

// Host reports whether all of the operand is host memory.
func (o *Operand) Host() bool {
	for _, b := range o.bufs() {
		if !b.core.host() {
			return false
		}
	}
	return true
}

// Staged reports whether some of the operand is staged.
func (o *Operand) Staged() bool {
	for _, b := range o.bufs() {
		if b.core.staging != nil {
			return true
		}
	}
	return false
}

// staged runs do on the staging buffers of the first n bytes of the operand, and returns how many
// bytes were copied.
func (o *Operand) staged(n int64, do func(s *stagingBuffer, off, length int64) (int64, error)) (moved int64, err error) {
	if !o.Staged() {
		return 0, nil
	}
	bufs := o.bufs()
	for g := range o.Layout.Part(o.Off, min(n, o.Len)) {
		b := bufs[g.Source]
		if b.core.staging == nil {
			continue
		}
		n, err := do(b.core.staging, b.off+g.Off, g.Len)
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// Sync makes the staged bytes of the operand equal to their sources, and returns how many it has
// copied.
func (o *Operand) Sync() (moved int64, err error) { return o.staged(o.Len, (*stagingBuffer).sync) }

// Arrived copies the first n bytes, as far as they are staged, to their sources, and returns how
// many it has copied.
func (o *Operand) Arrived(n int64) (moved int64, err error) {
	return o.staged(n, (*stagingBuffer).arrived)
}

// Gather copies the operand's first bytes to p, and Scatter does the reverse.
func (o *Operand) Gather(p []byte) error  { return o.copy(p, (*core).readAt) }
func (o *Operand) Scatter(p []byte) error { return o.copy(p, (*core).writeAt) }

// DirectOnly returns a Buffer with bytes of the operand that the CPU must not move, nil if
// there is none.
func (o *Operand) DirectOnly() *Buffer { return o.findBuffer((*Buffer).directOnly) }

// copy moves bytes between p and the operand, by CPU. It does not check the Buffers: they may
// have been released since take, which has checked them and keeps their memory.
func (o *Operand) copy(p []byte, do func(c *core, p []byte, off int64) (int, error)) error {
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

// AppendReady appends the functions that wait until the operand's bytes may be read.
func (o *Operand) AppendReady(list []func(context.Context) error) []func(context.Context) error {
	for _, b := range o.bufs() {
		if f := b.ready.Load(); f != nil {
			list = append(list, *f)
		}
	}
	return list
}
