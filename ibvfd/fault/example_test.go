// SPDX-License-Identifier: Apache-2.0

package fault_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd/fault"
)

// Stages come in the order of a registration's steps.
func Example() {
	earliest, latest := fault.StageAttach, fault.StageMap
	fmt.Printf("between %v and %v: %v\n", earliest, latest, fault.CauseGate)
	fmt.Println(earliest < latest)
	// Output:
	// between attach and map: exporter's gate
	// true
}
