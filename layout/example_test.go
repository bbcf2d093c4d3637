// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/layout"
)

// A matrix of 5 rows and 4 columns, 8 bytes a cell. A row is contiguous; the
// column takes one cell of each row. Its encoding does not grow with the matrix.
func ExampleInterleaved() {
	const rows, columns, cell = 5, 4, 8
	const row = columns * cell
	third, err := layout.Contiguous(2*row, row)
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := layout.Interleaved(layout.Extent{Len: cell}, layout.Dim{Count: rows, Stride: row})
	if err != nil {
		fmt.Println(err)
		return
	}
	for r := range third.Extents() {
		fmt.Println("row:", r.Off, r.Len)
	}
	for r := range first.Extents() {
		fmt.Println("column:", r.Off, r.Len)
	}
	wire, err := first.MarshalBinary()
	fmt.Println(first.Size(), "bytes, described in", len(wire), err)
	// Output:
	// row: 64 32
	// column: 0 8
	// column: 32 8
	// column: 64 8
	// column: 96 8
	// column: 128 8
	// 40 bytes, described in 8 <nil>
}

// Three memory regions as one composite region, of which an operation then
// takes any part by offset and length.
func ExampleSG() {
	l, err := layout.SG(
		layout.Extent{Off: 4096, Len: 100},
		layout.Extent{Source: 1, Len: 50},
		layout.Extent{Source: 2, Off: 512, Len: 200},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for r := range l.Part(90, 100) {
		fmt.Printf("source %d: %d bytes at %d\n", r.Source, r.Len, r.Off)
	}
	// Output:
	// source 0: 10 bytes at 4186
	// source 1: 50 bytes at 0
	// source 2: 40 bytes at 512
}

// Blocks of data each followed by its checksum, from two sources.
func ExampleRoundRobin() {
	l, err := layout.RoundRobin(2,
		layout.Strand{Extent: layout.Extent{Len: 512}, Stride: 512},
		layout.Strand{Extent: layout.Extent{Source: 1, Len: 8}, Stride: 8},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for r := range l.Extents() {
		fmt.Println(r.Source, r.Off, r.Len)
	}
	// Output:
	// 0 0 512
	// 1 0 8
	// 0 512 512
	// 1 8 8
}
