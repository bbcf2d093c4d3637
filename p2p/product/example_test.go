// SPDX-License-Identifier: Apache-2.0

package product_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/product"
)

// CUDA on a GeForce gives its memory to no NIC, whatever kernel and fabric could do.
func ExampleOf() {
	a := product.Of(product.Facts{Vendor: 0x10de, Device: 0x2b85, Driver: "nvidia", Model: "NVIDIA GeForce RTX 5090", ModelRead: true, OpenModules: product.Yes})
	fmt.Println(a.Line, a.Gives == product.No)
	// Output: GeForce true
}
