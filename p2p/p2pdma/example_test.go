// SPDX-License-Identifier: Apache-2.0

package p2pdma_test

import (
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/p2pdma"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Print the kernel's decision on two functions, and the ports that redirect.
func ExampleDecide() {
	m := machine.Open("")
	gpu, err1 := pciaddr.Parse("0000:03:00.0")
	nic, err2 := pciaddr.Parse("0000:04:00.0")
	if err1 != nil || err2 != nil {
		log.Fatal(err1, err2)
	}
	d := p2pdma.Decide(m, gpu, &nic)
	fmt.Println(d)
	for _, r := range d.Redirects {
		fmt.Println(r)
	}
}
