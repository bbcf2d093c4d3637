// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
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

// What the tree says about a pair that the kernel keeps apart.
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
			d := newDetours(filepath.Join(root, "sys")).between("0000:05:00.0", "0000:03:00.0")
			if (d.why == "") != (row.why == "") || !strings.Contains(d.why, row.why) {
				t.Errorf("%q, want %q", d.why, row.why)
			}
			if (d.remedy == "") != (row.remedy == "") || !strings.Contains(d.remedy, row.remedy) {
				t.Errorf("remedy %q, want %q", d.remedy, row.remedy)
			}
		})
	}
}

// A storm of registrations reads the tree once; many pairs take no room.
func TestDetoursAreRemembered(t *testing.T) {
	d := newDetours("/nonexistent")
	for i := range 3 * maxDetours {
		d.between("0000:05:00.0", string(rune(i)))
	}
	if len(d.seen) > maxDetours {
		t.Errorf("%d pairs are remembered", len(d.seen))
	}
	pair := [2]string{"a", "b"}
	first := d.between("a", "b")
	if again := d.between("a", "b"); again != first || d.seen[pair] != first {
		t.Errorf("%+v, then %+v", first, again)
	}
}

// The obstacle is part of the explanation where the kernel's decision is what
// the exporter refused for, and only there.
func TestExplainDetour(t *testing.T) {
	tree := aRootPort + upstream + toGPU + port + " acs=0x1d\n" + gpuBelow + toNIC + port + "\n" + nicBelow
	sys := filepath.Join(testenv.Tree{Functions: tree}.Write(t), "sys")
	apart := func(w *wireRecord) { w.Distance = -1; set(w.Provider[:], "0000:03:00.0") }
	byDistance := ret{funcP2PDistance, 1, 0}
	byType := ret{funcP2PType, 0, uint16(placement.MapTypeNotSupported)}
	for _, row := range []struct {
		name  string
		rec   *wireRecord
		want  string
		other bool // refused for another reason
	}{
		{"vfio's map", refused(unix.EINVAL, apart, ret{funcAttach, 0, 0}, byType, ret{funcPhysVec, unix.EINVAL, 0}, ret{funcMap, unix.EINVAL, 0}),
			"importer 0000:05:00.0 cannot reach 0000:03:00.0: the kernel does not support peer-to-peer between them, ACS redirect at 0000:02:00.0", false},
		{"xe's attach", refused(unix.EOPNOTSUPP, apart, byDistance, ret{funcExporterAttach, unix.EOPNOTSUPP, 0}, ret{funcAttach, unix.EOPNOTSUPP, 0}),
			"importer 0000:05:00.0 cannot reach 0000:03:00.0: distance -1, ACS redirect at 0000:02:00.0", false},
		{"a pin that is busy", refused(unix.EBUSY, apart, byDistance, ret{funcAttach, 0, 0}, ret{funcExporterPin, unix.EBUSY, 1}, ret{funcPin, unix.EBUSY, 0}),
			"refused pin", true},
		{"an importer on no PCI bus", refused(unix.EOPNOTSUPP, func(w *wireRecord) { apart(w); w.Dev.PCI = [16]byte{} }, byDistance, ret{funcExporterAttach, unix.EOPNOTSUPP, 0}, ret{funcAttach, unix.EOPNOTSUPP, 0}),
			"distance -1, the importer hangs on no PCI bus", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := testJoiner(10)
			j.conv.detours = newDetours(sys)
			j.handle(row.rec)
			r := j.take()[0].Record
			f := r.Explain()
			mustHave(t, f.String(), row.want)
			if row.other && strings.Contains(f.String(), "cannot reach") {
				t.Errorf("%v", f)
			}
			if r.Unreachable == "" {
				t.Error("the record does not say that the kernel found no way")
			}
		})
	}
}
