// SPDX-License-Identifier: Apache-2.0

package pciids_test

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/pciids"
)

// Find the name of a NIC in a file of this format.
func Example() {
	file := "15b3  Mellanox Technologies\n\t1021  MT2910 Family [ConnectX-7]\n"
	id, _ := pciids.Parse("15b3", "1021")
	names, err := pciids.Read(strings.NewReader(file), []pciids.ID{id})
	fmt.Println(names[id], err)
	// Output: Mellanox Technologies MT2910 Family [ConnectX-7] <nil>
}
