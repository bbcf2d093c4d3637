// SPDX-License-Identifier: Apache-2.0

package doubles

import (
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Specs fails the test unless every name opens the GPU at that address, and names of
// no GPU of the family are refused with those that there are.
func Specs(t *testing.T, family string, pci pciaddr.Addr, names ...string) {
	t.Helper()
	for _, spec := range names {
		a, err := gpualloc.Open(spec, gpualloc.Env{})
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if got := a.Describe(); got.PCI == nil || *got.PCI != pci {
			t.Errorf("%s opened %+v", spec, got)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"99", "0000:ff:1f.7", "GPU-deadbeef-0000-0000-0000-000000000000", "", "0/nowhere"} {
		spec := family + ":" + name
		_, err := gpualloc.Open(spec, gpualloc.Env{})
		if !errors.Is(err, gpualloc.ErrUnknownSpec) {
			t.Errorf("%q: got %v, want ErrUnknownSpec", spec, err)
		}
		which := "use auto, or one of: "
		if name == "0/nowhere" { // the GPU is there
			which = family + `:0 has no memory called "nowhere": no such allocator; use one of: `
		}
		Words(t, err, spec, which, family+":0")
	}
}

// TwoAtOneAddress fails the test unless the refusal of a PCI address that two of a
// double's GPUs share, as the tiles of one do for Level Zero, names both of them.
func TwoAtOneAddress(t *testing.T, family string) {
	t.Helper()
	const addr = "0000:d1:00.0"
	t.Setenv("DOUBLE_DEVICES", "2")
	t.Setenv("DOUBLE_PCI", addr+","+addr)
	_, err := gpualloc.Open(family+":"+addr, gpualloc.Env{})
	if !errors.Is(err, gpualloc.ErrAmbiguousSpec) {
		t.Errorf("got %v, want ErrAmbiguousSpec", err)
	}
	Words(t, err, "use one of: "+family+":0 (", addr+"), "+family+":1 (", addr+")")
}
