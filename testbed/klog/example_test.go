// SPDX-License-Identifier: Apache-2.0

package klog_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/testbed/klog"
)

func ExampleScanner() {
	var s klog.Scanner
	fmt.Fprint(&s, "[    2.97] infiniband rxe0: set active\n")
	fmt.Fprint(&s, "[   12.34] BUG: kernel NULL pointer dereference, address: 0000000000000010\n")
	fmt.Fprint(&s, "[   12.35] Oops: 0000 [#1] PREEMPT SMP PTI\n")
	for _, r := range s.Reports() {
		fmt.Println(r.Title)
	}
	// Output: BUG: kernel NULL pointer dereference, address: 0000000000000010
}
