// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestCPUMask(t *testing.T) {
	for cpu, want := range map[int]string{0: "00000001", 31: "80000000", 32: "00000001,00000000", 69: "00000020,00000000,00000000"} {
		if got := cpuMask(cpu); got != want {
			t.Errorf("processor %d: %s, want %s", cpu, got, want)
		}
	}
}
