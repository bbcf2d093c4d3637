// SPDX-License-Identifier: Apache-2.0

package align_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/gpualloc/align"
)

// A tensor in the middle of an allocation, as frameworks hand them out.
func ExampleSolve() {
	const allocation = 0x7f_4000_0000
	pieces, err := align.Solve(align.Request{
		Memory:      align.Range{Addr: allocation + 0x1234, Length: 100_000},
		Allocations: []align.Range{{Addr: allocation, Length: 2 << 20}},
		Page:        4 << 10,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("export", pieces[0].Export)
	// The runtime returned a dma-buf of exactly that range.
	mr, err := pieces[0].Bind(align.Descriptor{Size: pieces[0].Export.Length})
	fmt.Printf("offset %#x, length %d, IOVA %#x, %v\n", mr.Offset, mr.Length, mr.IOVA, err)
	// Output:
	// export [0x7f40001000, +0x19000)
	// offset 0x234, length 100000, IOVA 0x7f40001234, <nil>
}
