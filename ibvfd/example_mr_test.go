// SPDX-License-Identifier: Apache-2.0

package ibvfd_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Peer-direct needs a client in the kernel: a machine without has none.
func ExamplePeerClients() {
	clients, err := ibvfd.PeerClients("/nonexistent/sys")
	fmt.Println(clients, err)
	// Output: [] <nil>
}
