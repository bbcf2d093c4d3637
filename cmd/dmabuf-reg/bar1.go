// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/bits"

	"github.com/gpurdma/gpurdma/gpualloc/nvml"
)

// checkBAR1 refuses beforehand what the BAR1 of an NVIDIA GPU has no room for:
// count registrations of length bytes each. Where NVML does not answer, the
// driver will.
func checkBAR1(m memory, length uint64, count int) error {
	if m.Exporter != "nvidia" {
		return nil
	}
	need := int64(math.MaxInt64)
	if high, low := bits.Mul64(length, uint64(count)); high == 0 && low < math.MaxInt64 {
		need = int64(low)
	}
	gpus, err := nvml.GPUs()
	if err != nil {
		return nil
	}
	for _, g := range gpus {
		if g.PCI.String() == m.PCI {
			return g.CheckBAR1(need)
		}
	}
	return nil
}
