// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
	"github.com/gpurdma/gpurdma/trace/internal/machine"
)

// The obstacle is part of the explanation where the kernel's decision is what
// the exporter refused for, and only there.
func TestExplainDetour(t *testing.T) {
	const switched = "pci0000:00/0000:00:01.0/0000:01:00.0"
	tree := "pci0000:00/0000:00:01.0 class=0x060400 type=4\n" + switched + " class=0x060400 type=5\n" +
		switched + "/0000:02:00.0 class=0x060400 type=6 acs=0x1d\n" + switched + "/0000:02:00.0/0000:03:00.0 class=0x030000\n" +
		switched + "/0000:02:01.0 class=0x060400 type=6\n" + switched + "/0000:02:01.0/0000:05:00.0 class=0x020000\n"
	sys := filepath.Join(testenv.Tree{Functions: tree}.Write(t), "sys")
	apart := func(w *abi.Record) { w.Distance = -1; set(w.Provider[:], "0000:03:00.0") }
	byDistance := ret{abi.FuncP2PDistance, 1, 0}
	byType := ret{abi.FuncP2PType, 0, uint16(placement.MapTypeNotSupported)}
	for _, row := range []struct {
		name  string
		rec   *abi.Record
		want  string
		other bool // refused for another reason
	}{
		{"vfio's map", refused(unix.EINVAL, apart, ret{abi.FuncAttach, 0, 0}, byType, ret{abi.FuncPhysVec, unix.EINVAL, 0}, ret{abi.FuncMap, unix.EINVAL, 0}),
			"importer 0000:05:00.0 cannot reach 0000:03:00.0: the kernel does not support peer-to-peer between them, ACS redirect at 0000:02:00.0", false},
		{"xe's attach", refused(unix.EOPNOTSUPP, apart, byDistance, ret{abi.FuncExporterAttach, unix.EOPNOTSUPP, 0}, ret{abi.FuncAttach, unix.EOPNOTSUPP, 0}),
			"importer 0000:05:00.0 cannot reach 0000:03:00.0: distance -1, ACS redirect at 0000:02:00.0", false},
		{"a pin that is busy", refused(unix.EBUSY, apart, byDistance, ret{abi.FuncAttach, 0, 0}, ret{abi.FuncExporterPin, unix.EBUSY, 1}, ret{abi.FuncPin, unix.EBUSY, 0}),
			"refused pin", true},
		{"an importer on no PCI bus", refused(unix.EOPNOTSUPP, func(w *abi.Record) { apart(w); w.Dev.PCI = [16]byte{} }, byDistance, ret{abi.FuncExporterAttach, unix.EOPNOTSUPP, 0}, ret{abi.FuncAttach, unix.EOPNOTSUPP, 0}),
			"distance -1, the importer hangs on no PCI bus", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := testJoiner(10)
			j.conv.detours = machine.NewDetours(sys)
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
