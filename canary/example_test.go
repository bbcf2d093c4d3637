// SPDX-License-Identifier: Apache-2.0

package canary_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// Allocate on whatever is there, register with a NIC, and prove that the NIC
// reaches these bytes and no others.
func ExampleVerify() {
	ctx := context.Background()
	allocator, err := gpualloc.Open("auto", gpualloc.Env{})
	if err != nil {
		log.Fatal(err)
	}
	defer allocator.Close()
	buf, err := allocator.Alloc(ctx, 16<<20, gpualloc.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer buf.Close()

	nic, err := ibvfd.Open("rxe0")
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()

	report, err := canary.Verify(ctx, nic, buf, canary.Options{})
	for _, c := range report.Cases {
		fmt.Printf("%-45s %v\n", c.Name, c.OK)
	}
	if err != nil {
		log.Fatal(err) // which bytes were wrong, and where they came from
	}
}

func ExampleCaseNames() {
	fmt.Println(canary.CaseNames()[0])
	// Output: whole buffer
}
