// SPDX-License-Identifier: Apache-2.0

package niccheck_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/check/niccheck"
)

// The IDs of a family.
func Example() {
	for _, c := range niccheck.NIC {
		fmt.Println(c.ID)
	}
}
