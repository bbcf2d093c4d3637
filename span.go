// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"fmt"
	"os"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rails"
	"golang.org/x/sys/unix"
)

// Span is local memory of an operation: a part of a Buffer, or of buffers seen through a Layout. It never changes.
// The zero Span names no memory.
type Span struct {
	at     rails.Local
	of     *Buffer // nil for a view
	fabric *Fabric
	whole  int64 // size of the Buffer or the view
	err    error // why there is no such memory
}

// All returns all bytes of the Buffer.
func (b *Buffer) All() Span {
	if b == nil {
		return Span{err: noBuffer("use a buffer")}
	}
	return Span{at: rails.Local{Bufs: b.parts, Len: b.size}, of: b, fabric: b.fabric, whole: b.size}
}

// Range returns n bytes of the Buffer from off on; out of range, a Span with ErrRange.
func (b *Buffer) Range(off, n int64) Span { return b.All().Range(off, n) }

// View returns the bytes of the Buffer that a layout takes. The Buffer is the layout's source 0.
func (b *Buffer) View(l Layout) Span { return View(l, b) }

// View returns the bytes that a layout takes of buffers of one Fabric. The layout's source 0 is the first of them.
// Exporting a View gives the peer access to ALL bytes of these buffers, not only to those that the layout takes. To
// give access to a part only, export a Range, or a View of Slices.
func View(l Layout, buffers ...*Buffer) Span {
	if len(buffers) == 0 {
		return Span{err: noBuffer("make a view")}
	}
	s := Span{at: rails.Local{Len: l.Size()}, whole: l.Size()}
	for _, b := range buffers {
		switch {
		case b == nil:
			return Span{err: noBuffer("make a view")}
		case s.fabric != nil && s.fabric != b.fabric:
			return Span{err: errOtherFabric("make a view")}
		}
		s.fabric = b.fabric
	}
	for i := range s.fabric.set.NICs {
		parts := make([]*memory.Buffer, len(buffers))
		for k, b := range buffers {
			parts[k] = b.parts[i]
		}
		v, err := memory.NewView(l, parts...)
		if err != nil {
			return Span{err: err}
		}
		s.at.Views = append(s.at.Views, v)
	}
	return s
}

// Range returns n bytes of the Span from off on; out of range, a Span with ErrRange.
func (s Span) Range(off, n int64) Span {
	switch {
	case s.err != nil:
	case s.none():
		return Span{err: errZeroSpan("take a range")}
	case !within(off, n, s.at.Len):
		return Span{err: memory.OutOfRange("take a range", s.name(), off, n, s.at.Len)}
	}
	s.at.Off, s.at.Len = s.at.Off+off, n
	return s
}

// Size returns the number of bytes, 0 if the Span has an error.
func (s Span) Size() int64 {
	if s.err != nil {
		return 0
	}
	return s.at.Len
}

// Err returns why the Span is not valid; nil if it is valid, or zero.
func (s Span) Err() error { return s.err }

// name names the memory for messages: "bytes 4096 to 8191 of local buffer cuda:0 (64 KiB)".
func (s Span) name() string {
	switch {
	case s.err != nil:
		return "no memory: " + s.err.Error()
	case s.of != nil:
		return memory.Part(s.at.Off, s.at.Len, s.whole, "local "+s.of.name())
	case s.fabric != nil:
		return memory.Part(s.at.Off, s.at.Len, s.whole, "local view")
	}
	return "zero Span"
}

// none reports whether it is the zero Span.
func (s *Span) none() bool { return s.fabric == nil && s.err == nil }

// on returns the span on a NIC of a fabric.
func (s *Span) on(f *Fabric, n *rails.NIC) (memory.Span, error) {
	if s.err == nil && s.fabric != nil && s.fabric != f {
		return memory.Span{}, errOtherFabric("use a buffer")
	}
	return s.at.On(n), s.err
}

// Remote is memory of a peer, or a part of it. Import returns one, and UnmarshalBinary decodes one that the peer has
// encoded by MarshalBinary. It is valid only on the connection for which the peer has made it; on another one
// operations return ErrStaleKey. All, Range and View return new ones and do not change it.
type Remote struct {
	at  rails.Remote
	err error
}

// All returns the Remote itself, as Buffer.All returns all of a Buffer.
func (m Remote) All() Remote { return m }

// Range returns n bytes of the Remote from off on; out of range, a Remote with ErrRange.
func (m Remote) Range(off, n int64) Remote {
	switch {
	case m.err != nil:
	case m.at.First == nil:
		return Remote{err: errZeroRemote("take a range")}
	case !within(off, n, m.at.Len):
		return Remote{err: memory.OutOfRange("take a range", m.name(), off, n, m.at.Len)}
	}
	m.at.Off, m.at.Len = m.at.Off+off, n
	return m
}

// View returns the bytes that a layout takes of the memory that the peer has exported. If the peer has exported a
// View, this layout replaces the peer's. Source 0 is the whole exported Span, or the first buffer of an exported
// View. A Range has no View (EINVAL).
func (m Remote) View(l Layout) Remote {
	switch {
	case m.err != nil:
		return m
	case m.at.First == nil:
		return Remote{err: errZeroRemote("make a view")}
	case m.part():
		return Remote{err: &failure.Error{Op: "make a view", Detail: "of a range", Remedy: "make the view of the whole memory, with a layout that begins there", Err: unix.EINVAL}}
	}
	rb, err := m.at.First.View(l)
	if err != nil {
		return Remote{err: err}
	}
	return remoteOf(rb, m.at.More.View(rb))
}

// Size returns the number of bytes, 0 if the Remote has an error.
func (m Remote) Size() int64 {
	if m.err != nil {
		return 0
	}
	return m.at.Len
}

// Err returns why the Remote is not valid; nil if it is valid, or zero.
func (m Remote) Err() error { return m.err }

// name names the memory for messages: "bytes 0 to 7 of the peer's memory "weights"".
func (m Remote) name() string {
	switch {
	case m.err != nil:
		return "no memory: " + m.err.Error()
	case m.at.First == nil:
		return "zero Remote"
	}
	return memory.Part(m.at.Off, m.at.Len, m.at.First.Size(), m.at.First.String())
}

// Access returns the access that the peer has given to the memory.
func (m Remote) Access() Access {
	if m.at.First == nil {
		return 0
	}
	return Access(m.at.First.Access())
}

// MarshalBinary encodes the descriptor of the whole memory, to be sent by the program's own means; a Range is EINVAL.
// Its keys are valid on one connection, over the rails that it had when Share made the descriptor.
func (m Remote) MarshalBinary() ([]byte, error) {
	switch {
	case m.err != nil:
		return nil, m.err
	case m.at.First == nil:
		return nil, errZeroRemote("encode remote memory")
	case m.part():
		return nil, &failure.Error{Op: "encode remote memory", Detail: "a range", Remedy: "send the whole descriptor, and the range beside it", Err: unix.EINVAL}
	}
	return rails.Encode(m.at.First, m.at.More)
}

// UnmarshalBinary decodes a descriptor of the peer, and checks all of it: ErrMalformed if it is none.
func (m *Remote) UnmarshalBinary(data []byte) error {
	rb, more, err := rails.Decode(data)
	if err != nil {
		return err
	}
	*m = remoteOf(rb, more)
	return nil
}

// remoteOf returns all of a peer's memory.
func remoteOf(first *memory.RemoteBuffer, more *rails.Others) Remote {
	return Remote{at: rails.Remote{First: first, More: more, Len: first.Size()}}
}

// part reports whether it is not all of the memory.
func (m *Remote) part() bool { return m.at.Off != 0 || m.at.Len != m.at.First.Size() }

// Access is what a peer may do with memory.
type Access uint32

// The kinds of access, which may be combined by "|". ReadWrite does not include Atomic.
const (
	ReadOnly  = Access(ibvfd.AccessRemoteRead)
	WriteOnly = Access(ibvfd.AccessRemoteWrite)
	Atomic    = Access(ibvfd.AccessRemoteAtomic)
	ReadWrite = ReadOnly | WriteOnly
)

// String lists what is allowed: "read|write|atomic".
func (a Access) String() string {
	var names []string
	for i, bit := range []Access{ReadOnly, WriteOnly, Atomic} {
		if a&bit != 0 {
			names = append(names, [...]string{"read", "write", "atomic"}[i])
		}
	}
	if len(names) == 0 || a&^(ReadWrite|Atomic) != 0 {
		return fmt.Sprintf("Access(%#x)", uint32(a))
	}
	return strings.Join(names, "|")
}

// check refuses no access, and unknown bits.
func (a Access) check(op string) error {
	if a != 0 && a&^(ReadWrite|Atomic) == 0 {
		return nil
	}
	return &failure.Error{Op: op, Detail: a.String(), Remedy: "use ReadOnly, WriteOnly, ReadWrite, and Atomic with them", Err: unix.EINVAL}
}

func (a Access) verbs() ibvfd.Access { return ibvfd.Access(a) }

// within reports whether n bytes from off on lie in size bytes.
func within(off, n, size int64) bool { return off >= 0 && n >= 0 && off <= size && n <= size-off }

func errZeroSpan(op string) error {
	return &failure.Error{Op: op, Detail: "zero Span", Remedy: "name local memory: Buffer.All, Buffer.Range or View", Err: unix.EINVAL}
}

func errZeroRemote(op string) error {
	return &failure.Error{Op: op, Detail: "zero Remote", Remedy: "name memory of the peer's: Conn.Import returns it", Err: unix.EINVAL}
}

func noBuffer(op string) error {
	return &failure.Error{Op: op, Detail: "the buffer is nil", Remedy: "look at the error of the Alloc or Register that was to return it", Err: unix.EINVAL}
}

func errOtherFabric(op string) error {
	return &failure.Error{Op: op, Detail: "the local buffer is of another fabric", Remedy: "register its source with this one", Err: os.ErrInvalid}
}
