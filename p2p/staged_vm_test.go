// SPDX-License-Identifier: Apache-2.0

package p2p

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// Debian's kernels up to 6.12 are built without peer-to-peer: the function that
// decides is not in them, and whatever GPU and NIC there may be, drivers that
// can move their buffers stage them, for that reason.
//
//testbed:kernel 6.1 6.12
func TestVMStagedWithoutP2PDMA(t *testing.T) {
	testenv.VM(t)
	m := machine.Open("")
	if there := symbol(t, "pci_p2pdma_distance_many"); there || !symbol(t, "pci_enable_device") {
		t.Fatalf("%s has the function that decides: %v", m.Kernel.Release, there)
	}
	all := functions(t)
	for _, gpu := range all {
		for _, class := range []drivers.Class{drivers.ClassAMDGPU, drivers.ClassXe, drivers.ClassI915} {
			for _, nic := range all {
				for _, kind := range []drivers.Kind{drivers.Pinned, drivers.Revocable, drivers.Dynamic} {
					p := drivers.Predict(m, drivers.Exporter{Class: class, PCI: &gpu}, drivers.Importer{PCI: &nic, Kind: kind, PeerToPeer: true})
					reason := "built without CONFIG_PCI_P2PDMA"
					if class == drivers.ClassI915 {
						reason = "for any importer"
					}
					if p.Outcome != chain.Staged || !slices.ContainsFunc(p.Why, func(why string) bool { return strings.Contains(why, reason) }) {
						t.Fatalf("%v at %v, %v importer at %v: %v", class, gpu, kind, nic, p)
					}
				}
			}
		}
	}
	t.Logf("%s: %d functions", m.Kernel.Release, len(all))
}

// symbol reports a symbol of the running kernel.
func symbol(t *testing.T, name string) bool {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasSuffix(lines.Text(), " "+name) {
			return true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return false
}
