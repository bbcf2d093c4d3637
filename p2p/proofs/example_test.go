// SPDX-License-Identifier: Apache-2.0

package proofs_test

import (
	"fmt"
	"log"
	"os"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/proofs"
)

// Judge each pair of this machine by the proofs that `p2pcheck --live --proofs` kept.
func Example() {
	const file = "/run/p2pcheck.proofs"
	f, err := os.Open(file)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	kept, err := proofs.Read(f)
	if err != nil {
		log.Fatal(err)
	}
	m := machine.Open("")
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	if err1 != nil || err2 != nil {
		log.Fatal(err1, err2)
	}
	for _, g := range gpus {
		for _, n := range nics {
			pair := p2p.Judge(m, g, n)
			kept.Recall(m, &pair, file)
			fmt.Printf("%s -> %s: %v\n", g.Name, n.Name, pair.Verdict)
		}
	}
}
