// SPDX-License-Identifier: Apache-2.0

package result_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/checks"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// Print the document that p2pcheck --json writes for this machine, without errors.
func Example() {
	m := machine.Open("")
	gpus, _ := drivers.GPUs(m)
	nics, _ := drivers.NICs(m)
	var pairs []p2p.Pair
	for _, g := range gpus {
		for _, n := range nics {
			pairs = append(pairs, p2p.Judge(m, g, n))
		}
	}
	run := result.New(m, gpus, nics, pairs)
	run.AddFindings(checks.Run(m, check.Subject{GPUs: gpus, NICs: nics, Pairs: pairs}))
	fmt.Println(result.Verdict(&run, run.Status()), run.Summary)
}

// Print the pairs that are not direct, of a run that was read from a file.
func ExampleRun() {
	run := result.Run{Pairs: []result.Pair{
		{GPU: "0000:03:00.0", NIC: "mlx5_0", Outcome: "direct", Counts: true},
		{GPU: "0000:03:00.0", NIC: "mlx5_1", Outcome: "staged", Counts: true, Why: []string{"a host bridge that the kernel does not trust"}},
	}}
	for _, p := range run.Pairs {
		if p.Outcome != "direct" {
			fmt.Println(p.GPU, p.NIC, p.Outcome, p.Why)
		}
	}
	// Output:
	// 0000:03:00.0 mlx5_1 staged [a host bridge that the kernel does not trust]
}
