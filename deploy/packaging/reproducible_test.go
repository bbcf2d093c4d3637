// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The same source in another directory gives the same bytes.
func TestReproducible(t *testing.T) {
	first, again := built(t, "GPURDMA_PACKAGES"), built(t, "GPURDMA_PACKAGES_AGAIN")
	for _, name := range append(debs(t, first), rpms(t, first)...) {
		a, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(again, filepath.Base(name)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs when it is built again", filepath.Base(name))
		}
	}
}
