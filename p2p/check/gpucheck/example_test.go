// SPDX-License-Identifier: Apache-2.0

package gpucheck_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/check/gpucheck"
)

// The IDs of a family.
func Example() {
	for _, c := range gpucheck.General {
		fmt.Println(c.ID)
	}
}
