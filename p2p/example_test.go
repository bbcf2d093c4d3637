// SPDX-License-Identifier: Apache-2.0

package p2p_test

import (
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/p2p"
)

// Whether a NIC is going to reach a GPU's memory, and why.
func ExampleMachine_Predict() {
	m := p2p.Open("") // this machine
	gpu, err := p2p.ParseAddr("0000:03:00.0")
	if err != nil {
		log.Fatal(err)
	}
	exporter, err := m.Exporter(gpu)
	if err != nil {
		log.Fatal(err)
	}
	importer, err := m.Importer("mlx5_0")
	if err != nil {
		log.Fatal(err)
	}
	p := m.Predict(exporter, importer)
	fmt.Println(p)
	for _, note := range p.Notes {
		fmt.Println("note:", note)
	}
	for _, r := range p.Decision.Redirects {
		fmt.Println("pci=disable_acs_redir=" + r.PCI.String())
	}
}
