// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"log"
	"os"

	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// A run that was read from a file, as p2pcheck shows it.
func ExampleText() {
	var run result.Run
	run.Machine = result.Host{Kernel: "6.12.1", CPU: "Intel", Config: "/boot/config-6.12.1"}
	run.GPUs = []result.GPU{{Name: "0000:03:00.0", Driver: "amdgpu", Counts: true}}
	run.NICs = []result.NIC{{Name: "mlx5_0", Driver: "mlx5_core"}, {Name: "mlx5_1", Driver: "mlx5_core"}}
	run.Pairs = []result.Pair{
		{GPU: "0000:03:00.0", NIC: "mlx5_0", Outcome: "direct", Counts: true, NCCL: "PIX"},
		{GPU: "0000:03:00.0", NIC: "mlx5_1", Outcome: "staged", Counts: true, NCCL: "PHB", Why: []string{"a host bridge that the kernel does not trust"}},
	}
	run.Summary = result.Summary{Direct: 1, Staged: 1}
	if err := render.Text(os.Stdout, render.Style{}, run); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Linux 6.12.1, Intel; CONFIG_PCI_P2PDMA: unknown (/boot/config-6.12.1)
	//
	// GPU                  mlx5_0      mlx5_1
	// 0000:03:00.0 amdgpu  direct PIX  STAGED PHB
	//
	// STAGED  0000:03:00.0 -> mlx5_1
	//   a host bridge that the kernel does not trust
	//
	// 2 pairs: 1 direct, 1 staged, 0 refused, 0 unknown
	// next: the changes above. Each link of a pair, and what it rests on:
	//         p2pcheck why 0000:03:00.0 mlx5_1
}
