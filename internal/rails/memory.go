// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"slices"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Local is local memory as each NIC of a Set has it.
type Local struct {
	Bufs     []*memory.Buffer // or
	Views    []*memory.View
	Off, Len int64
}

// On returns the memory as a NIC has it.
func (l *Local) On(n *NIC) memory.Span {
	switch {
	case l.Bufs != nil:
		return memory.Span{Buf: l.Bufs[n.Index], Offset: l.Off, Length: l.Len}
	case l.Views != nil:
		return memory.Span{View: l.Views[n.Index], Offset: l.Off, Length: l.Len}
	}
	return memory.Span{}
}

// Reached reports whether a NIC reaches the memory.
func (l *Local) Reached(n *NIC) bool {
	x := l.On(n)
	return x.Missing() == nil
}

// moved reports whether a prover saw that a NIC reaches another memory than the device's.
func (l *Local) moved(n *NIC) bool {
	x := l.On(n)
	return x.Moved()
}

// Remote is a peer's memory as each rail has it.
type Remote struct {
	First    *memory.RemoteBuffer // by the first rail; it may be without keys
	More     *Others              // by the others; nil if there are none
	Off, Len int64
}

// On returns the memory as a rail has it.
func (m *Remote) On(rail int) memory.RemoteSpan {
	rb := m.First
	if rail > 0 {
		rb = m.More.On(rail)
	}
	return memory.RemoteSpan{Buf: rb, Offset: m.Off, Length: m.Len}
}

// For returns the memory as an operation of a kind uses it over a rail.
func (m *Remote) For(kind operation.Kind, rail int) memory.RemoteSpan {
	if kind != operation.FetchAdd && kind != operation.CompareSwap {
		return m.On(rail)
	}
	rb := m.atomics(rail)
	if rb == nil { // it waits for keys
		rb = m.First
	}
	return memory.RemoteSpan{Buf: rb, Offset: m.Off, Length: m.Len}
}

// atomics returns the descriptor with the keys for atomics over a rail; nil if the peer takes none over
// it. Of memory with a name they change when the peer takes atomics over another NIC.
func (m *Remote) atomics(rail int) *memory.RemoteBuffer {
	if o := m.More; o != nil && o.conn != nil {
		return o.atomics(rail)
	}
	if rb := m.On(rail).Buf; rb != nil && rb.HasAtomics() {
		return rb
	}
	return nil
}

// hasNoAtomics reports whether no rail has keys for atomics, nor will get any.
func (m *Remote) hasNoAtomics() bool {
	o := m.More
	return m.First != nil && !m.First.HasAtomics() && (o == nil || o.conn == nil && !slices.ContainsFunc(o.given, func(rb *memory.RemoteBuffer) bool { return rb != nil && rb.HasAtomics() }))
}

// reached reports whether the peer's NIC of a rail reaches the memory.
func (m *Remote) reached(rail int) bool {
	if m.Len == 0 {
		return true
	}
	x := m.On(rail)
	return x.Buf != nil && !x.Buf.Keyless()
}

// Memory is the memory of an operation.
type Memory struct {
	Locals  []Local
	Remotes []Remote
	Bytes   []byte // of a write without local memory, or of a message
	Note    []byte // of a notification
	Sums    Sums   // of the bytes, with the notification
	Size    int64
	Whole   bool // it goes over one rail, and is not read back
	// All gives a work of a rail all of the operation.
	All func(w *workqueue.Work, r *Rail) error
}

// appendBytes appends the peer's bytes that it uses.
func (m *Memory) appendBytes(list []memory.Bytes) []memory.Bytes {
	for i := range m.Remotes {
		x := m.Remotes[i].On(0)
		list = x.AppendBytes(list)
	}
	return list
}

// readable reports whether the peer allows to read all of its memory.
func (m *Memory) readable() bool {
	for i := range m.Remotes {
		if m.Remotes[i].Len > 0 && m.Remotes[i].First.Access()&ibvfd.AccessRemoteRead == 0 {
			return false
		}
	}
	return m.Size > 0
}

// reaches reports whether the NICs of a rail reach the memory, on both sides.
func (m *Memory) reaches(r *Rail) bool {
	for i := range m.Remotes {
		if !m.Remotes[i].reached(r.Number) {
			return false
		}
	}
	for i := range m.Locals {
		if !m.Locals[i].Reached(r.NIC) {
			return false
		}
	}
	return true
}

// moved reports whether a prover saw that a NIC of a rail, on either side, reaches another memory.
func (m *Memory) moved(r *Rail) bool {
	for i := range m.Remotes {
		if x := m.Remotes[i].On(r.Number); x.Buf != nil && x.Buf.Moved() {
			return true
		}
	}
	for i := range m.Locals {
		if m.Locals[i].moved(r.NIC) {
			return true
		}
	}
	return false
}

// fill gives a work n bytes from off on, as a rail has them, and with note the message or the
// notification.
func (m *Memory) fill(w *workqueue.Work, r *Rail, off, n int64, note bool) error {
	if w.Kind == operation.Send {
		return w.SetMessage(r.Conn.Works, m.Bytes)
	}
	if m.Bytes != nil {
		if err := w.AddBytes(m.Bytes[off : off+n]); err != nil {
			return err
		}
	}
	from, to := stretch{off, n}, stretch{off, n}
	for i := range m.Locals {
		l := m.Locals[i]
		if at, some := from.take(l.Len); some > 0 {
			l.Off, l.Len = l.Off+at, some
			x := l.On(r.NIC)
			if err := w.AddLocal(&x); err != nil {
				return err
			}
		}
	}
	for i := range m.Remotes {
		p := m.Remotes[i]
		if at, some := to.take(p.Len); some > 0 {
			p.Off, p.Len = p.Off+at, some
			x := p.On(r.Number)
			if err := w.AddRemote(&x); err != nil {
				return err
			}
		}
	}
	if note {
		return w.SetNote(r.Conn.Works, m.Note, m.Sums.Mode)
	}
	return nil
}

// in returns a byte of the peer's memory that lies in one memory, as a rail has it; false if there is
// none that may be read.
func (m *Memory) in(mem uint64, r *Rail) (p Remote, ok bool) {
	for _, p := range m.Remotes {
		if p.Len == 0 || p.First.Access()&ibvfd.AccessRemoteRead == 0 || !p.reached(r.Number) {
			continue
		}
		x := p.On(0)
		if b, ok := x.ByteOf(mem); ok {
			p.Off, p.Len = b.Offset, b.Length
			return p, true
		}
	}
	return Remote{}, false
}

// withdrawn reports whether the peer has withdrawn some of its memory, over a rail or the first one.
func (m *Memory) withdrawn(r *Rail) bool {
	return slices.ContainsFunc(m.Remotes, func(p Remote) bool {
		x := p.On(r.Number)
		return p.First != nil && p.First.Withdrawn() || x.Buf != nil && x.Buf.Withdrawn()
	})
}

// touches reports whether fillFlush can read a byte of a memory.
func (m *Memory) touches(mem uint64, r *Rail) bool {
	_, ok := m.in(mem, r)
	return ok
}

// fillFlush gives a read one byte of a memory.
func (m *Memory) fillFlush(w *workqueue.Work, r *Rail, mem uint64) error {
	if p, ok := m.in(mem, r); ok {
		x := p.On(r.Number)
		if err := w.AddRemote(&x); err != nil {
			return err
		}
	}
	return w.NeedByte()
}

// stretch is what is left of a part of an operation's bytes: n bytes after off others.
type stretch struct{ off, n int64 }

// take returns which of the next size bytes are of the stretch.
func (s *stretch) take(size int64) (at, some int64) {
	at = min(s.off, size)
	some = min(s.n, size-at)
	s.off -= at
	s.n -= some
	return at, some
}
