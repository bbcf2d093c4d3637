// SPDX-License-Identifier: Apache-2.0

package ibdev_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// List needs neither libibverbs nor privileges.
func ExampleList() {
	devices, err := ibdev.List("/nonexistent/sys")
	fmt.Println(len(devices), err)
	// Output: 0 <nil>
}
