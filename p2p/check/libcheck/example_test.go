// SPDX-License-Identifier: Apache-2.0

package libcheck_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/check/libcheck"
)

// The IDs of a family.
func Example() {
	for _, c := range libcheck.Libraries {
		fmt.Println(c.ID)
	}
}
