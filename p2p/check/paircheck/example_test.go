// SPDX-License-Identifier: Apache-2.0

package paircheck_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/check/paircheck"
)

// The IDs of a family.
func Example() {
	for _, c := range paircheck.Decision {
		fmt.Println(c.ID)
	}
}
