// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
)

// Many goroutines predict at once. This test is for the race detector.
func TestConcurrent(t *testing.T) {
	m := machinetest.Fixture{Cpu: machinetest.Xeon, Tree: machinetest.Planted("ACS2", "acs=0x1d")}.Open(t)
	gpu := machinetest.Addr(t, "03:00.0")
	nics := []string{"04:00.0", "04:00.1", "07:00.0", "09:00.0", "81:00.0"}
	var wg sync.WaitGroup
	for i := range 4 * len(nics) {
		nic := machinetest.Addr(t, nics[i%len(nics)])
		wg.Go(func() {
			if p := Predict(m, Exporter{Class: ClassNVIDIA, PCI: &gpu}, Importer{PCI: &nic}); p.Decision.Steps < 4 {
				t.Errorf("%v: %v", nic, p)
			}
		})
	}
	wg.Wait()
}
