// SPDX-License-Identifier: Apache-2.0

package drivers_test

import (
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Print whether a NIC is going to reach a GPU's memory, and why.
func ExamplePredict() {
	m := machine.Open("") // this machine
	gpu, err := pciaddr.Parse("0000:03:00.0")
	if err != nil {
		log.Fatal(err)
	}
	exporter, err := drivers.ExporterOf(m, gpu)
	if err != nil {
		log.Fatal(err)
	}
	importer, err := drivers.ImporterOf(m, "mlx5_0")
	if err != nil {
		log.Fatal(err)
	}
	p := drivers.Predict(m, exporter, importer)
	fmt.Println(p)
	for _, note := range p.Notes {
		fmt.Println("note:", note)
	}
	for _, r := range p.Decision.Redirects {
		fmt.Println("pci=disable_acs_redir=" + r.PCI.String())
	}
}
