// SPDX-License-Identifier: Apache-2.0

package redact_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/p2p/redact"
)

// A line of the kernel's log keeps the kernel's words and the devices. The name of the program and its number are left out.
func ExampleRedactor_Line() {
	fmt.Println(redact.New().Line("NVRM: Xid (PCI:0000:13:00): 79, pid=412345, name=train-alice, GPU has fallen off the bus."))
	// Output: NVRM: Xid (PCI:0000:13:00): 79, …, GPU has fallen off the bus.
}

// Devices that an administrator has named have other names in a snapshot, the same wherever they stand.
func ExampleRedactor_Path() {
	r := redact.New()
	fmt.Println(r.Path("sys/class/infiniband/storage0/ports/1/state"))
	fmt.Println(r.Path("sys/class/infiniband/storage1/ports/1/state"))
	fmt.Println(r.Path("sys/class/infiniband/mlx5_0/ports/1/state"))
	// Output:
	// sys/class/infiniband/rdma-a0/ports/1/state
	// sys/class/infiniband/rdma-a1/ports/1/state
	// sys/class/infiniband/mlx5_0/ports/1/state
}
