// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// softProviders are those of the NICs that a machine has here.
var softProviders = []string{"rxe.driver", "siw.driver"}

// hideProviders keeps libibverbs from loading the libraries of hardware that is
// not there, some fifteen of them at each program's start: a second under
// emulation.
func hideProviders(dir string) error {
	files, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		if slices.Contains(softProviders, f.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return fmt.Errorf("hiding a provider: %w", err)
		}
	}
	return nil
}
