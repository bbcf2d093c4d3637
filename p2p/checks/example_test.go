// SPDX-License-Identifier: Apache-2.0

package checks_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/checks"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Everything that fails on this machine, with what to change.
func ExampleRun() {
	m := machine.Open("")
	gpus, _ := drivers.GPUs(m)
	nics, _ := drivers.NICs(m)
	var pairs []p2p.Pair
	for _, g := range gpus {
		for _, n := range nics {
			pairs = append(pairs, p2p.Judge(m, g, n))
		}
	}
	for _, f := range checks.Run(m, check.Subject{GPUs: gpus, NICs: nics, Pairs: pairs}) {
		if f.Result == p2p.ResultFail && f.Remedy != nil {
			fmt.Println(f.Check.ID, f.Scope, f.Read, f.Remedy.Change)
		}
	}
}
