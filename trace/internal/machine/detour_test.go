// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

const (
	aRootPort = "pci0000:00/0000:00:01.0 class=0x060400 type=4\n"
	upstream  = "pci0000:00/0000:00:01.0/0000:01:00.0 class=0x060400 type=5\n"
	toGPU     = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0"
	toNIC     = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0"
	port      = " class=0x060400 type=6"
	gpuBelow  = toGPU + "/0000:03:00.0 class=0x030000\n"
	nicBelow  = toNIC + "/0000:05:00.0 class=0x020000\n"
)

// The PCI tree shows why the kernel keeps a pair apart.
func TestDetours(t *testing.T) {
	const redirects, blocks = " acs=0x1d", " acs=0x11"
	for _, row := range []struct {
		name, tree  string
		why, remedy string
	}{
		{"ports that redirect", aRootPort + upstream + toGPU + port + redirects + "\n" + gpuBelow + toNIC + port + redirects + "\n" + nicBelow,
			"ACS redirect at 0000:02:00.0, 0000:02:01.0", "disable_acs_redir=0000:02:00.0;0000:02:01.0"},
		{"one that redirects, one that only blocks", aRootPort + upstream + toGPU + port + blocks + "\n" + gpuBelow + toNIC + port + redirects + "\n" + nicBelow,
			"ACS redirect at 0000:02:01.0", "disable_acs_redir=0000:02:01.0)"},
		{"nothing in the way", aRootPort + upstream + toGPU + port + "\n" + gpuBelow + toNIC + port + "\n" + nicBelow, "", ""},
		{"an unprivileged view", aRootPort + upstream + toGPU + port + " config=64\n" + gpuBelow + toNIC + port + "\n" + nicBelow,
			"could not be read", ""},
		{"root ports of their own", aRootPort + "pci0000:00/0000:00:01.0/0000:03:00.0\n" + "pci0000:00/0000:00:02.0 class=0x060400 type=4\npci0000:00/0000:00:02.0/0000:05:00.0\n",
			"no switch above both", "one PCIe switch"},
		{"one is gone", aRootPort + upstream + toGPU + port + "\n" + gpuBelow, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			root := testenv.Tree{Functions: row.tree}.Write(t)
			d := NewDetours(filepath.Join(root, "sys")).Between("0000:05:00.0", "0000:03:00.0")
			if (d.Why == "") != (row.why == "") || !strings.Contains(d.Why, row.why) {
				t.Errorf("%q, want %q", d.Why, row.why)
			}
			if (d.Remedy == "") != (row.remedy == "") || !strings.Contains(d.Remedy, row.remedy) {
				t.Errorf("remedy %q, want %q", d.Remedy, row.remedy)
			}
		})
	}
}

// A storm of registrations reads the tree once; many pairs take no room.
func TestDetoursAreRemembered(t *testing.T) {
	d := NewDetours("/nonexistent")
	for i := range 3 * maxDetours {
		d.Between("0000:05:00.0", string(rune(i)))
	}
	if len(d.seen) > maxDetours {
		t.Errorf("%d pairs are remembered", len(d.seen))
	}
	pair := [2]string{"a", "b"}
	first := d.Between("a", "b")
	if again := d.Between("a", "b"); again != first || d.seen[pair] != first {
		t.Errorf("%+v, then %+v", first, again)
	}
}
