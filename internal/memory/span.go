// SPDX-License-Identifier: Apache-2.0

package memory

import (
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

// All returns all bytes of the region's current layout. The Span keeps this layout when Assign
// replaces the region's.
func (r *Region) All() Span {
	l := r.Layout()
	return Span{Region: r, Length: l.Size(), layout: l}
}

// Memories returns the IDs of the memory that the span is of.
func (s *Span) Memories() (list []uint64) {
	switch {
	case s.Buf != nil:
		return []uint64{s.Buf.core.id}
	case s.View != nil:
		for _, b := range s.View.bufs {
			list = append(list, b.core.id)
		}
	case s.Region != nil:
		for _, b := range s.Region.bufs {
			list = append(list, b.core.id)
		}
	}
	return list
}

// where names the memory for messages.
func (s *Span) where() string {
	switch {
	case s.Buf != nil:
		return "local " + s.Buf.String()
	case s.View != nil:
		return "local view"
	}
	return "local region"
}

// shape returns the layout of the Region for this Span.
func (s *Span) shape() layout.Layout {
	if s.layout.Size() > 0 {
		return s.layout
	}
	return s.Region.Layout()
}
