// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/gpurdma/gpurdma/gpualloc/nvml"

// checkBAR1 refuses beforehand what the BAR1 of an NVIDIA GPU has no room for:
// count registrations of length bytes each. Where NVML does not answer, the
// driver will.
func checkBAR1(m memory, length uint64, count int) error {
	if m.Exporter != "nvidia" {
		return nil
	}
	gpus, err := nvml.GPUs()
	if err != nil {
		return nil
	}
	for _, g := range gpus {
		if g.PCI.String() == m.PCI {
			return g.CheckBAR1(times(length, count))
		}
	}
	return nil
}
