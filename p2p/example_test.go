// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Whether each NIC reaches each GPU, and the one thing to change if not.
func ExampleJudge() {
	m := machine.Open("")
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	if err1 != nil || err2 != nil {
		log.Fatal(err1, err2)
	}
	for _, g := range gpus {
		for _, n := range nics {
			p := p2p.Judge(m, g, n)
			fmt.Println(p.Name(), p.Prediction.Outcome)
			if p.Remedy != nil {
				fmt.Println("change:", p.Remedy.Change)
			}
		}
	}
}
