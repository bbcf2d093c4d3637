// SPDX-License-Identifier: Apache-2.0

package matching_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/matching"
)

// The NIC that is next to both GPUs goes to the one that has no other.
func ExampleBest() {
	all := []matching.Pair{
		{GPU: "0000:13:00.0", NIC: "mlx5_0", Cost: 1},
		{GPU: "0000:13:00.0", NIC: "mlx5_1", Cost: 4},
		{GPU: "0000:15:00.0", NIC: "mlx5_0", Cost: 1},
	}
	best := matching.Best(all)
	for i, p := range all {
		if best[i] {
			fmt.Println(p.GPU, p.NIC)
		}
	}
	// Output:
	// 0000:13:00.0 mlx5_1
	// 0000:15:00.0 mlx5_0
}
