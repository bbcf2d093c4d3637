// SPDX-License-Identifier: Apache-2.0

package gpurdma

import "github.com/gpurdma/gpurdma/layout"

type (
	// Layout describes bytes that are not contiguous: which bytes of which sources, in which order. View binds the
	// numbers of its sources to buffers.
	Layout = layout.Layout

	// Extent is Len bytes of a source from Off on.
	Extent = layout.Extent

	// Dim is a dimension of an interleaved layout: Count repetitions, each Stride bytes after the last.
	Dim = layout.Dim
)

// The functions below return layouts without an error: a layout that is not valid carries its error, and so does the
// Span or the Remote that View makes of it. Package layout has more.

// SG returns the layout of extents, one after the other: see [layout.SG].
func SG(extents ...Extent) Layout { return carried(layout.SG(extents...)) }

// Interleaved returns the layout of a block that is repeated in any number of dimensions, the outermost first: see
// [layout.Interleaved].
func Interleaved(block Extent, dims ...Dim) Layout {
	return carried(layout.Interleaved(block, dims...))
}

// Concat returns the layouts one after the other, as one layout.
func Concat(layouts ...Layout) Layout { return carried(layout.Concat(layouts...)) }

func carried(l Layout, err error) Layout {
	if err != nil {
		return layout.Invalid(err)
	}
	return l
}
