// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"path/filepath"
)

// linkPCI makes a link in dir to the sysfs directory of each PCI device. In a
// path, only slot and function of a device are known: the rest of its name is
// the number of its bus.
func linkPCI(sysfs, dir string, paths map[string][]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for id, path := range paths {
		at := filepath.Join(sysfs, path[0])
		for _, slot := range path[1:] {
			found, err := filepath.Glob(filepath.Join(at, "*:*:"+slot))
			if err != nil {
				return err
			}
			if len(found) != 1 {
				return fmt.Errorf("PCI device %s: %d devices %s below %s, want 1", id, len(found), slot, at)
			}
			at = found[0]
		}
		if err := os.Symlink(at, filepath.Join(dir, id)); err != nil {
			return err
		}
	}
	return nil
}
