// SPDX-License-Identifier: Apache-2.0

package gpurdma_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// A matrix of 5 rows and 4 columns, 8 bytes a cell. A row is contiguous; the
// column takes one cell of each row. What a peer is sent does not grow with the
// matrix.
func ExampleInterleaved() {
	const rows, columns, cell = 5, 4, 8
	const row = columns * cell
	third, err := gpurdma.Contiguous(2*row, row)
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := gpurdma.Interleaved(gpurdma.Extent{Off: 0, Len: cell}, gpurdma.Dim{Count: rows, Stride: row})
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
	l, err := gpurdma.SG(
		gpurdma.Extent{Source: 0, Off: 4096, Len: 100},
		gpurdma.Extent{Source: 1, Off: 0, Len: 50},
		gpurdma.Extent{Source: 2, Off: 512, Len: 200},
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
	l, err := gpurdma.RoundRobin(2,
		gpurdma.Strand{Extent: gpurdma.Extent{Source: 0, Len: 512}, Stride: 512},
		gpurdma.Strand{Extent: gpurdma.Extent{Source: 1, Len: 8}, Stride: 8},
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

// The blocks of a sequence in a KV cache: 16 KiB each, wherever the block table
// has put them. They are gathered into one contiguous run of the peer. The work
// requests come into the caller's memory, a batch at a time.
func ExampleLower() {
	const block, blocks = 16 << 10, 4096
	var table []gpurdma.Extent
	for i := range int64(blocks) {
		at := i * 1031 % (2 * blocks) // as an allocator would scatter them
		table = append(table, gpurdma.Extent{Off: at * block, Len: block})
	}
	cache, err := gpurdma.SG(table...)
	if err != nil {
		fmt.Println(err)
		return
	}
	sequence, err := gpurdma.Contiguous(0, blocks*block)
	if err != nil {
		fmt.Println(err)
		return
	}
	lowering, err := gpurdma.Lower(ibvfd.OpWrite,
		gpurdma.Side{Layout: cache, Memory: []gpurdma.Memory{{{Addr: 1 << 32, Length: 2 * blocks * block, Key: 0x11}}}},
		gpurdma.Side{Layout: sequence, Memory: []gpurdma.Memory{{{Addr: 1 << 40, Length: blocks * block, Key: 0x22}}}},
		cache.Size(), gpurdma.Limits{MaxSGE: 30, MaxMsg: 1 << 30})
	if err != nil {
		fmt.Println(err)
		return
	}
	wrs, sges := make([]ibvfd.SendWR, 64), make([]ibvfd.SGE, 64*30)
	requests, pieces := 0, 0
	for n := lowering.Next(wrs, sges); n > 0; n = lowering.Next(wrs, sges) {
		requests += n
		for _, wr := range wrs[:n] {
			pieces += len(wr.SGE)
		}
	}
	fmt.Println(pieces, "blocks in", requests, "work requests")
	// Output: 4096 blocks in 137 work requests
}
