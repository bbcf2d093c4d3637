// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
)

// The blocks of a sequence in a KV cache, of 16 KiB each, at the places of the block table.
// They are gathered into one contiguous run of the peer. Next puts the work requests into the
// caller's memory, a batch at a time.
func ExampleLower() {
	const block, blocks = 16 << 10, 4096
	var table []engine.Extent
	for i := range int64(blocks) {
		at := i * 1031 % (2 * blocks) // as an allocator would scatter them
		table = append(table, engine.Extent{Off: at * block, Len: block})
	}
	cache, err := engine.SG(table...)
	if err != nil {
		fmt.Println(err)
		return
	}
	sequence, err := engine.Contiguous(0, blocks*block)
	if err != nil {
		fmt.Println(err)
		return
	}
	lowering, err := engine.Lower(ibvfd.OpWrite,
		engine.Side{Layout: cache, Memory: []engine.Memory{{{Addr: 1 << 32, Length: 2 * blocks * block, Key: 0x11}}}},
		engine.Side{Layout: sequence, Memory: []engine.Memory{{{Addr: 1 << 40, Length: blocks * block, Key: 0x22}}}},
		cache.Size(), engine.Limits{MaxSGE: 30, MaxMsg: 1 << 30})
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
