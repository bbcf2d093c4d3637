// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// bridgeAbove is the port that one of the machine's devices is plugged into.
func bridgeAbove(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks("/run/gpurdma/pci/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(filepath.Dir(dir))
}

// Where no host bridge lets peer-to-peer pass, the explanation names what keeps
// two devices from the short way: ports that redirect, or that there is none.
//
//testbed:machine fabric+Nehalem
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMDetour(t *testing.T) {
	testenv.VM(t)
	gpus := map[string]testenv.SoftGPU{}
	for _, g := range testenv.SoftGPUs(t, "personality=amdgpu") {
		gpus[g.Name] = g
	}
	imp := testenv.TestImporter(t)
	tr := open(t, mine())
	for _, row := range []struct {
		gpu, importer string
		words         []string // none: it works
		not           string
	}{
		{"gpu0", "edu0", nil, ""},
		{"gpu3", "edu3", []string{"ACS redirect at " + bridgeAbove(t, "gpu3") + ", " + bridgeAbove(t, "edu3"), "disable_acs_redir="}, "no switch"},
		{"gpu0", "edu1", []string{"no switch above both"}, "ACS"},
		{"gpu0", "edu3", []string{"no switch above both"}, "ACS"},
	} {
		t.Run(row.gpu+" "+row.importer, func(t *testing.T) {
			b := onGPU(t, gpus[row.gpu], "vfio")
			var mapErr error
			err := b.Segments()[0].Buf.Do(func(fd int) error {
				a, err := imp.Attach(pciOf(t, row.importer), fd, testenv.DynamicImporter, true)
				if err != nil {
					return err
				}
				_, mapErr = a.Map()
				return a.Detach()
			})
			if err != nil {
				t.Fatal(err)
			}
			if row.words == nil {
				if mapErr != nil {
					t.Fatalf("map: %v", mapErr)
				}
				return
			}
			if mapErr != unix.EINVAL {
				t.Fatalf("map answered %v, want EINVAL", mapErr)
			}
			f := lastFailure(t, tr, inode(b.Buffer), MapRefused)
			mustHave(t, f.String(), append(row.words, "exporter", "importer "+pciOf(t, row.importer)+" cannot reach "+gpus[row.gpu].PCI)...)
			if strings.Contains(f.String(), row.not) {
				t.Errorf("%q has %q in it", f, row.not)
			}
		})
	}
}
