// SPDX-License-Identifier: Apache-2.0

package nicplan

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// A copy of a machine can have any names: only those of DRM's nodes are device files, and none makes another line of
// gres.conf.
func TestDevicesOfHostileNames(t *testing.T) {
	const at = "0000:13:00.0"
	a, err := pciaddr.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	dir := filepath.Join(root, "sys/bus/pci/devices", at, "drm")
	for _, name := range []string{"card0", "card0\nNodeName=all Name=gpu File=nvme0n1", "renderD128", "card1 x", "cardboard", "renderD", "card0-DP-1", "controlD64"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	list := Devices(result.Run{GPUs: []result.GPU{{Name: at, PCI: &a, Counts: true}}}, machine.Open(root))
	if len(list) != 1 || !slices.Equal(list[0].Files, []string{"/dev/dri/renderD128", "/dev/dri/card0"}) {
		t.Errorf("%+v", list)
	}
}
