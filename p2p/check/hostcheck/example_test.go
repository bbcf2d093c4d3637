// SPDX-License-Identifier: Apache-2.0

package hostcheck_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/check/hostcheck"
)

// The IDs of a family.
func Example() {
	for _, c := range hostcheck.Kernel {
		fmt.Println(c.ID)
	}
}
