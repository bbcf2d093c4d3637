// SPDX-License-Identifier: Apache-2.0

package topo_test

import (
	"log"
	"os"

	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/topo"
)

// Print the PCI tree of this machine, as p2pcheck topo draws it.
func ExampleRead() {
	m := machine.Open("")
	gpus, _ := drivers.GPUs(m)
	nics, _ := drivers.NICs(m)
	tree, unread := topo.Read(m, gpus, nics, true)
	for _, err := range unread {
		log.Print(err)
	}
	if err := tree.Text(os.Stdout, false); err != nil {
		log.Fatal(err)
	}
}
