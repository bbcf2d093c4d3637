// SPDX-License-Identifier: Apache-2.0

package memory

// Span is local memory of an operation: Length bytes from Offset on, of a Buffer or of a View.
// The zero Span has no bytes.
type Span struct {
	Buf            *Buffer // or
	View           *View
	Offset, Length int64
}

// All returns all bytes of the Buffer.
func (b *Buffer) All() Span { return Span{Buf: b, Length: b.size} }

// Memories returns the IDs of the memory that the span is of.
func (s *Span) Memories() (list []uint64) {
	switch {
	case s.Buf != nil:
		return []uint64{s.Buf.core.id}
	case s.View != nil:
		for _, b := range s.View.bufs {
			list = append(list, b.core.id)
		}
	}
	return list
}

// where names the memory for messages.
func (s *Span) where() string {
	if s.Buf != nil {
		return "local " + s.Buf.String()
	}
	return "local view"
}
