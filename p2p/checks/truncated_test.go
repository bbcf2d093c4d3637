// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/internal/machinetest"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// If only a part of the configuration space was read, no check takes a capability behind that part
// for absent. Of some functions the kernel itself has only 256 bytes, and it ignores capabilities
// behind them.
func TestTruncatedConfig(t *testing.T) {
	tree := testenv.Machines["small-mi300"]()
	for _, e := range []edit{cpu(machinetest.Xeon), swap("vendor=0x1022 device=0x14a4", "vendor=0x8086 device=0x1")} {
		e(&tree) // no way over the root: ACS decides
	}
	root := tree.Write(t)
	configs, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*/config"))
	if err != nil || len(configs) < 10 {
		t.Fatal(configs, err)
	}
	gpu, nic := machinetest.Addr(t, "13:00.0"), machinetest.Addr(t, "14:00.0")
	pair := func(s check.Subject) drivers.Prediction {
		for _, p := range s.Pairs {
			if *p.GPU.Exporter.PCI == gpu && *p.NIC.Importer.PCI == nic {
				return p.Prediction
			}
		}
		t.Fatal("no pair")
		return drivers.Prediction{}
	}
	m := machine.Open(root)
	if p := pair(subject(m)); p.Outcome != chain.Direct {
		t.Fatal(p)
	}
	onWay := []string{"0000:13:00.0", "0000:12:00.0", "0000:11:00.0", "0000:12:01.0", "0000:14:00.0"}
	ports := onWay[1:4]
	for _, config := range configs {
		text, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(filepath.Dir(config))
		in := func(list []string) bool { return strings.Contains(strings.Join(list, " "), name) }
		for _, size := range []int{0, 1, 63, 64, 255, 256, 4095} {
			if err := os.WriteFile(config, text[:size], 0o600); err != nil {
				t.Fatal(err)
			}
			m := machine.Open(root)
			s := subject(m)
			known := size == 256 // the kernel itself reads no more
			if p := pair(s); (p.Outcome == chain.Direct) != (known || !in(onWay)) {
				t.Errorf("%d bytes of %s: %v", size, name, p)
			}
			for _, f := range Run(m, s) {
				hardware := f.Check.ID == "ISO-ACS-PORT" || f.Check.ID == "ISO-ACS-SOURCE" || f.Check.ID == "ISO-ATS"
				if f.Result != p2p.ResultPass || known && !hardware {
					continue
				}
				said := strings.Join(f.Scope, " ") + " "
				switch id := f.Check.ID; {
				case (id == "ISO-ACS-PORT" || id == "ISO-ACS-SOURCE") && in(ports) && strings.Contains(said, name+" "),
					id == "P2P-ACS-LIST" && in(onWay) && strings.Contains(said, "0000:13:00.0 -> bnxt_re0 "),
					id == "ISO-ATS" && (in(ports) || name == "0000:14:00.0") && strings.Contains(said, "0000:13:00.0 -> bnxt_re0 "),
					(id == "ISO-RO" || id == "PCIE-MPS" || id == "PCIE-MRRS") && name == "0000:14:00.0" && size < 0x70 && strings.Contains(said, "bnxt_re0 "):
					t.Errorf("%d bytes of %s: %s passes of %v: %s", size, name, id, f.Scope, f.Read)
				}
			}
		}
		if err := os.WriteFile(config, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
