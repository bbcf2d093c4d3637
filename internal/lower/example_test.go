// SPDX-License-Identifier: Apache-2.0

package lower_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/layout"
)

// The blocks of a sequence in a KV cache, of 16 KiB each, at the places of the block table.
// They are gathered into one contiguous run of the peer. Next puts the work requests into the
// caller's memory, a batch at a time.
func ExampleLower() {
	const block, blocks = 16 << 10, 4096
	var table []layout.Extent
	for i := range int64(blocks) {
		at := i * 1031 % (2 * blocks) // as an allocator would scatter them
		table = append(table, layout.Extent{Off: at * block, Len: block})
	}
	cache, err := layout.SG(table...)
	if err != nil {
		fmt.Println(err)
		return
	}
	sequence, err := layout.Contiguous(0, blocks*block)
	if err != nil {
		fmt.Println(err)
		return
	}
	lowering := lower.Lower(ibvfd.OpWrite,
		lower.Side{Layout: cache, Memory: []lower.Memory{{{Addr: 1 << 32, Length: 2 * blocks * block, Key: 0x11}}}},
		lower.Side{Layout: sequence, Memory: []lower.Memory{{{Addr: 1 << 40, Length: blocks * block, Key: 0x22}}}},
		cache.Size(), lower.Limits{MaxSGE: 30, MaxMsg: 1 << 30})
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
