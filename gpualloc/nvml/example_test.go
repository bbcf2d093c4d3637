// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/gpualloc/nvml"
)

// How much of each GPU's BAR 1 is left for registrations.
func ExampleGPUs() {
	gpus, err := nvml.GPUs()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, g := range gpus {
		if g.BAR1 != nil {
			fmt.Println(g.UUID, g.PCI, g.BAR1.Free())
		}
	}
}

// Many small buffers take more of BAR 1 than their bytes.
func ExampleWindow() {
	fmt.Println(nvml.Window(4096, 4096, 65537))
	// Output: 262144
}
