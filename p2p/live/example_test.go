// SPDX-License-Identifier: Apache-2.0

package live_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/live"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// Print the predicted and the proven outcome of each pair of this machine.
func Example() {
	m := machine.Open("")
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	if err1 != nil || err2 != nil {
		log.Fatal(err1, err2)
	}
	prover, err := live.Open(m, live.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer prover.Close()
	for _, g := range gpus {
		for _, n := range nics {
			pair := p2p.Judge(m, g, n)
			pair.Prove(m, prover.Prove(context.Background(), pair))
			fmt.Printf("%s -> %s: predicted %v, proven %v\n", g.Name, n.Name, pair.Prediction, pair.Proof)
			if pair.Agrees() == placement.No {
				fmt.Println("the prediction is wrong")
			}
		}
	}
}
