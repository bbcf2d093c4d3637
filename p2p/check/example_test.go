// SPDX-License-Identifier: Apache-2.0

package check_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// A check that can fail decides about the machine where it is unknown.
func ExampleFinding_Decides() {
	c := &check.Check{ID: "MY-CHECK", Worst: p2p.ResultFail}
	fmt.Println(check.Finding{Check: c}.Decides())
	// Output: true
}
