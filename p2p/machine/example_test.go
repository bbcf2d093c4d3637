// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Print the kernel of this machine, and whether it has peer-to-peer DMA.
func ExampleOpen() {
	m := machine.Open("")
	fmt.Println(m.Kernel.Release, m.CPU, m.Kernel.P2PDMA)
}
