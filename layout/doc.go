// SPDX-License-Identifier: Apache-2.0

// Package layout describes bytes that are not contiguous.
//
// A [Layout] is a list of extents ([SG]), a block repeated in several dimensions
// ([Interleaved]), strands taken in turn ([RoundRobin]), or these nested
// ([Layout.Repeat], [Concat]). An [Extent] names its memory by a number, the source:
// package gpurdma, which has the same names, binds the numbers to buffers.
//
// The bytes of a layout, in its order, are its run: offsets of [Layout.Part] count in it.
// A layout takes a few bytes of memory and on the wire, however many blocks it describes:
// [Layout.MarshalBinary] encodes it, and [Layout.UnmarshalBinary] decodes the bytes of a
// peer, which it does not trust.
package layout

// To add a shape, change this package, its encoding included, and internal/layouttest, which makes random ones.
