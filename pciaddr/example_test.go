// SPDX-License-Identifier: Apache-2.0

package pciaddr_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/pciaddr"
)

func Example() {
	gpu, err := pciaddr.Parse("03:00.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(gpu, "on bus", gpu.Bus)
	// Output: 0000:03:00.0 on bus 3
}
