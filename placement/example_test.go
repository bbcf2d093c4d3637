// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/placement"
)

// A GPU's memory, mapped through an IOMMU: the device address says nothing,
// the physical address that the exporter handed to the kernel says all.
func ExampleDecide() {
	machine := &placement.Machine{BARs: []placement.BAR{{
		Device: "0000:03:00.0", Index: 1, GPU: true,
		Range: placement.Range{Start: 0x3800000000, Size: 32 << 30},
	}}}
	seen := placement.Inputs{
		Mapped:      true,
		Translation: placement.Translated,
		DMA:         placement.ViewOf(placement.Range{Start: 0xfff00000, Size: 65536}),
	}
	fmt.Println(placement.Decide(seen, machine))

	seen.Resources = placement.ViewOf(placement.Range{Start: 0x3800200000, Size: 65536})
	p := placement.Decide(seen, machine)
	fmt.Println(p)
	fmt.Println("direct:", p.Direct())
	// Output:
	// unknown: only device addresses were seen, and an IOMMU translates them
	// peer-to-peer: 0000:03:00.0 BAR 1 (physical address)
	// direct: unknown
}
