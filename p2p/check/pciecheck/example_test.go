// SPDX-License-Identifier: Apache-2.0

package pciecheck_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/check/pciecheck"
)

// The IDs of a family.
func Example() {
	for _, c := range pciecheck.Isolation {
		fmt.Println(c.ID)
	}
}
