// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLinkPCI(t *testing.T) {
	sysfs, dir := t.TempDir(), filepath.Join(t.TempDir(), "pci")
	gpu := filepath.Join(sysfs, "pci0000:00/0000:00:10.0/0000:01:00.0")
	for _, d := range []string{gpu, filepath.Join(sysfs, "pci0000:00/0000:00:11.0/0000:02:00.0"), filepath.Join(gpu, "power")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := linkPCI(sysfs, dir, map[string][]string{"gpu0": {"pci0000:00", "10.0", "00.0"}}); err != nil {
		t.Fatal(err)
	}
	if got, err := filepath.EvalSymlinks(filepath.Join(dir, "gpu0")); err != nil || got != gpu {
		t.Errorf("gpu0 is %s, %v; want %s", got, err, gpu)
	}
	err := linkPCI(sysfs, dir, map[string][]string{"nic7": {"pci0000:00", "12.0"}})
	if err == nil || !strings.Contains(err.Error(), "nic7") {
		t.Errorf("a device that is not there: %v", err)
	}
}
