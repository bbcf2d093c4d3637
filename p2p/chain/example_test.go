// SPDX-License-Identifier: Apache-2.0

package chain_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// One link that is not known keeps a pair from being direct.
func ExampleChain_Conclude() {
	var c chain.Chain
	for l := chain.Library; l <= chain.Fabric; l++ {
		c[l] = chain.Hold("read, and it holds")
	}
	fmt.Println(c.Conclude().Outcome())
	c[chain.Fabric] = chain.Open("run as root to read ACS")
	v := c.Conclude()
	link, _ := v.Decides()
	fmt.Println(v.Outcome(), link, v.Deciding().Text())
	// Output:
	// direct
	// unknown fabric run as root to read ACS
}
