// SPDX-License-Identifier: Apache-2.0

package hostmem_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
)

// What holds the memory keeps it from being unmapped.
func Example() {
	buf, err := hostmem.Alloc(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	release, _ := buf.Hold()
	fmt.Println(len(buf.Bytes()), buf.Close() != nil)
	release()
	fmt.Println(buf.Close())
	// Output:
	// 100 true
	// <nil>
}
