// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// On a machine without a GPU no check fails about reaching one. With a GPU, or if that is not known, the
// check fails as before.
func TestWithoutGPU(t *testing.T) {
	for _, nic := range []string{"vendor=0x8086 device=0x100e driver:e1000e", "vendor=0x15b3 device=0x1021 driver:mlx5_core", "vendor=0x15b3 device=0x1007 driver:mlx4_core rdma:mlx4_0"} {
		root := testenv.Worker(nic).Write(t)
		m := machine.Open(root)
		for _, f := range Run(m, subject(m)) {
			if f.Result == p2p.ResultFail {
				t.Errorf("%s: %s fails: %s", nic, f.Check.ID, f.Read)
			}
			if f.Check.ID == "KRN-CFG-P2PDMA" && (f.Result != p2p.ResultSkip || !strings.Contains(f.Read, "no GPU") || f.Remedy != nil || f.Expect != "") {
				t.Errorf("%s: %+v", nic, f)
			}
		}
	}
	withGPU := testenv.Worker("vendor=0x8086 device=0x100e driver:e1000e")
	withGPU.Functions += "pci0000:00/0000:00:05.0 class=0x030200 vendor=0x10de device=0x2330 driver:nvidia\n"
	unread := testenv.Worker("vendor=0x8086 device=0x100e driver:e1000e")
	unread.Functions += "pci0000:00/0000:00:05.0 class=odd vendor=0x10de device=0x2330 driver:nvidia\n"
	for what, tree := range map[string]testenv.Tree{"a GPU": withGPU, "a function that may be one": unread} {
		if r := results(tree.Write(t)); r["NIC-PRESENT"] != p2p.ResultFail {
			t.Errorf("with %s: %v", what, r["NIC-PRESENT"])
		}
	}
}

// A driver is to be loaded for a card that has one.
func TestMissingNIC(t *testing.T) {
	for nic, want := range map[string]string{
		"vendor=0x8086 device=0x100e driver:e1000e":    "",
		"vendor=0x8086 device=0x1593 driver:ice":       "modprobe -a irdma",
		"vendor=0x15b3 device=0x1021":                  "modprobe -a mlx5_ib",
		"vendor=0x15b3 device=0x1003":                  "modprobe -a mlx4_ib",
		"vendor=0x1d0f device=0xefa2":                  "modprobe -a efa",
		"vendor=0x1d0f device=0xec20 driver:ena":       "",
		"vendor=0x14e4 device=0x1750 driver:bnxt_en":   "modprobe -a bnxt_re",
		"vendor=0x1234 device=0x0001 driver:something": "",
	} {
		tree := testenv.Worker(nic)
		tree.Functions += "pci0000:00/0000:00:05.0 class=0x030200 vendor=0x10de device=0x2330 driver:nvidia\n"
		found := checked(t, tree, check.Live{}, "NIC-PRESENT")
		if len(found) != 1 || found[0].Result != p2p.ResultFail || found[0].Remedy == nil || found[0].Remedy.Command != want {
			t.Errorf("%s: %+v, remedy %+v", nic, found, found[0].Remedy)
		}
	}
}
