// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/layout"
)

type (
	// Layout describes bytes that are not contiguous: which bytes of which sources, in which
	// order. A [Region] and a [RemoteBuffer] bind it to memory.
	Layout = layout.Layout

	// Extent is Len bytes of a source from Off on.
	Extent = layout.Extent

	// Dim is a dimension of an interleaved layout: Count repetitions, each Stride bytes
	// after the one before.
	Dim = layout.Dim

	// Strand is an extent that moves on by Stride bytes after each of its turns.
	Strand = layout.Strand
)

// SG returns the layout of extents, one after the other: see [layout.SG].
func SG(extents ...Extent) (Layout, error) { return layout.SG(extents...) }

// Contiguous returns the layout of one extent of source 0.
func Contiguous(off, length int64) (Layout, error) { return layout.Contiguous(off, length) }

// Interleaved returns the layout of a block that is repeated in any number of dimensions, the
// outermost first: see [layout.Interleaved].
func Interleaved(block Extent, dims ...Dim) (Layout, error) {
	return layout.Interleaved(block, dims...)
}

// RoundRobin returns the layout of a block of each strand in turn, count times: see
// [layout.RoundRobin].
func RoundRobin(count int64, strands ...Strand) (Layout, error) {
	return layout.RoundRobin(count, strands...)
}

// Concat returns the layouts one after the other, as one layout.
func Concat(layouts ...Layout) (Layout, error) { return layout.Concat(layouts...) }

type (
	// Piece is a range of memory that a NIC knows under one key.
	Piece = lower.Piece

	// Memory is a source of a layout: pieces that follow one another.
	Memory = lower.Memory

	// Side is one end of a transfer: a layout, the memory of its sources, and the place in the
	// layout's run where the transfer begins.
	Side = lower.Side

	// Limits are the limits of a queue pair and its device for one work request.
	Limits = lower.Limits

	// Lowering makes work requests of a transfer between two layouts. Next fills the caller's
	// slices with the next ones, and Done reports whether all are made.
	Lowering = lower.Lowering
)

// Lower prepares a transfer of length bytes by op, which is OpWrite, OpWriteImm or OpRead of
// package ibvfd: for programs that post their own work requests. An [Endpoint] calls it by
// itself.
func Lower(op ibvfd.Opcode, local, remote Side, length int64, lim Limits) (*Lowering, error) {
	return lower.Lower(op, local, remote, length, lim)
}
