// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/check"
)

// Functions for direct data are looked for if a NIC may have one, and the slow VPD
// is read if there are any, once of each card.
func TestDirectDataReadsWhatItNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		edits   []edit
		vendors func(int) bool
		vpd     int
	}{
		"a card before it": {nil, func(n int) bool { return n == 6 }, 0},
		"no function":      {[]edit{swap("device=0x1021", "device=0x1023")}, func(n int) bool { return n > 6 }, 0},
		"one function": {[]edit{swap("device=0x1021", "device=0x1023"), func(f *testenv.Tree) func(*testing.T, string) {
			const dir = "pci0000:10/0000:10:02.0"
			f.Functions += dir + " class=0x080100 vendor=0x15b3 device=0x2100 driver:mlx5_ib\n"
			for _, d := range []string{"sys/devices/" + dir, amdNIC, "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:03.0/0000:16:00.0"} {
				put(d+"/vpd", "\x90\x04\x00V3\x01a\x78")(f)
			}
			return nil
		}}, func(n int) bool { return n > 6 }, 3},
	} {
		root := written(t, testenv.Machines["small-hgx"](), c.edits)
		m, s, err := only(root, "NIC-DATADIRECT", check.Live{})
		if err != nil {
			t.Fatal(err)
		}
		times := asked(t, root, func() { Run(m, s) })
		if !c.vendors(times["vendor"]) || times["vpd"] != c.vpd {
			t.Errorf("%s: vendor %d times, VPD %d times", name, times["vendor"], times["vpd"])
		}
	}
}
