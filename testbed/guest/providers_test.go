// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHideProviders(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"mlx5.driver", "rxe.driver", "siw.driver", "efa.driver"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("driver x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := hideProviders(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 || left[0].Name() != "rxe.driver" || left[1].Name() != "siw.driver" {
		t.Errorf("%v, %v are left", left, err)
	}
	if err := hideProviders(filepath.Join(dir, "none")); err != nil {
		t.Errorf("without libibverbs: %v", err)
	}
}
