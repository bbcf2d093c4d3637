// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// build makes a sysfs tree. Each line of spec is the path of a device below
// devices/, followed by attributes and links: "numa_node=1", "driver->nvidia",
// "class/drm/card0" (a class entry that points here through device).
func build(t *testing.T, spec string) sysfs.FS {
	t.Helper()
	root := t.TempDir()
	mkdir := func(p string) {
		t.Helper()
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		mkdir(filepath.Dir(name))
		rel, err := filepath.Rel(filepath.Dir(name), target)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(rel, name); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(spec) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		dir := filepath.Join(root, "devices", f[0])
		mkdir(dir)
		if _, err := pciaddr.Parse(path.Base(f[0])); err == nil {
			link(dir, filepath.Join(root, "bus/pci/devices", path.Base(f[0])))
		}
		for _, item := range f[1:] {
			if name, driver, ok := strings.Cut(item, "->"); ok {
				target := filepath.Join(root, "bus/x/drivers", driver)
				mkdir(target)
				link(target, filepath.Join(dir, name))
			} else if name, value, ok := strings.Cut(item, "="); ok {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			} else {
				link(dir, filepath.Join(root, item, "device"))
			}
		}
	}
	return sysfs.New(root)
}

// A GPU and a NIC behind one switch, a second NIC on its own root port with a
// virtio child, one behind another host bridge, and a platform device.
const machine = `
pci0000:00/0000:00:01.0 vendor=0x8086 device=0x1901 class=0x060400
pci0000:00/0000:00:01.0/0000:01:00.0 vendor=0x1000 device=0xc030 class=0x060400 driver->pcieport
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0 vendor=0x1000 device=0xc030 class=0x060400
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0 vendor=0x10de device=0x2330 class=0x030200 subsystem_vendor=0x10de subsystem_device=0x16c1 numa_node=0 driver->nvidia class/drm/card0
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0 vendor=0x1000 device=0xc030 class=0x060400
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0 vendor=0x15b3 device=0x1021 class=0x020700 numa_node=0 class/infiniband/mlx5_0
pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.1 vendor=0x15b3 device=0x1021 class=0x020700
pci0000:00/0000:00:02.0 vendor=0x1af4 device=0x1041 class=0x020000 numa_node=-1
pci0000:00/0000:00:02.0/virtio0 driver->virtio_net class/net/eth0
pci0000:80/0000:80:01.0 vendor=0x8086 device=0x1901 class=0x060400
pci0000:80/0000:80:01.0/0000:81:00.0 vendor=0x15b3 device=0x1021 class=0x020700 numa_node=1 class/infiniband/mlx5_1
pci0000:80/0000:80:01.0/0000:81:00.0/mlx5_core.sf.4/net class/net/sf0
platform/vgem class/drm/card1
platform/0000:05:00.0 class/drm/card2
`

func addr(t *testing.T, s string) pciaddr.Addr {
	t.Helper()
	a, err := pciaddr.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestDeviceOf(t *testing.T) {
	s := build(t, machine)
	for class, want := range map[string]string{
		"class/drm/card0/device":         "0000:03:00.0",
		"class/net/eth0/device":          "0000:00:02.0", // through virtio
		"class/net/sf0/device":           "0000:81:00.0", // through auxiliary
		"class/infiniband/mlx5_1/device": "0000:81:00.0",
		"class/drm/card1/device":         "", // platform
		"class/drm/card2/device":         "", // only named like one
		"class/none":                     "",
	} {
		a, ok := DeviceOf(s, class)
		got := ""
		if ok {
			got = a.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", class, got, want)
		}
	}
}

func TestReadFunction(t *testing.T) {
	s := build(t, machine)
	got, err := ReadFunction(s, addr(t, "03:00.0"))
	want := Function{
		Addr: addr(t, "03:00.0"), Vendor: 0x10de, Device: 0x2330, SubVendor: 0x10de, SubDevice: 0x16c1, Class: 0x030200,
		NUMANode: 0, Driver: "nvidia", SysPath: "devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0",
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if !got.IsDisplay() || got.IsBridge() {
		t.Error("a GPU is a display and no bridge")
	}
	bridge, err := ReadFunction(s, addr(t, "01:00.0"))
	if err != nil || !bridge.IsBridge() || bridge.IsDisplay() || bridge.NUMANode != -1 || bridge.Driver != "pcieport" {
		t.Errorf("%+v, %v", bridge, err)
	}
	if nic, err := ReadFunction(s, addr(t, "00:02.0")); err != nil || nic.NUMANode != -1 || nic.Driver != "" {
		t.Errorf("%+v, %v", nic, err)
	}
	if _, err := ReadFunction(s, addr(t, "09:00.0")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing function: %v", err)
	}
	broken := build(t, "pci0000:00/0000:00:01.0 vendor=no device=0x1 class=0x1")
	if _, err := ReadFunction(broken, addr(t, "00:01.0")); err == nil {
		t.Error("vendor \"no\" is a number")
	}
}

func TestUpstream(t *testing.T) {
	s := build(t, machine)
	for of, want := range map[string]string{
		"03:00.0": "[0000:02:00.0 0000:01:00.0 0000:00:01.0]",
		"00:02.0": "[]",
	} {
		up, err := Upstream(s, addr(t, of))
		if got := fmt.Sprint(up); got != want || err != nil {
			t.Errorf("above %s: %s, %v; want %s", of, got, err, want)
		}
	}
	if _, err := Upstream(s, addr(t, "09:00.0")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing function: %v", err)
	}
	if _, err := Chain(s, addr(t, "05:00.0")); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a function below no root bus: %v", err)
	}
}

func TestDistance(t *testing.T) {
	s := build(t, machine)
	for _, c := range []struct {
		a, b, common, words string
		hops                int
	}{
		{"03:00.0", "03:00.0", "0000:03:00.0", "the same function", 0},
		{"04:00.0", "04:00.1", "0000:02:01.0", "below the bridge 0000:02:01.0, 2 hops", 2},
		{"03:00.0", "04:00.0", "0000:01:00.0", "below the bridge 0000:01:00.0, 4 hops", 4},
		{"03:00.0", "02:00.0", "0000:02:00.0", "below the bridge 0000:02:00.0, 1 hops", 1},
		{"03:00.0", "00:02.0", "pci0000:00", "below the host bridge of pci0000:00, 5 hops", 5},
		{"03:00.0", "81:00.0", "", "different host bridges, 8 hops, NUMA nodes 0 and 1", 8},
		{"00:02.0", "81:00.0", "", "different host bridges, 5 hops", 5},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			a, b := addr(t, pair[0]), addr(t, pair[1])
			hops, common, ok := Distance(s, a, b)
			if hops != c.hops || common != c.common || !ok {
				t.Errorf("%v to %v: %d, %q, %v; want %d, %q", a, b, hops, common, ok, c.hops, c.common)
			}
		}
		if got := Relation(s, addr(t, c.a), addr(t, c.b)); !strings.Contains(got, c.words) {
			t.Errorf("%s to %s: %q, want %q", c.a, c.b, got, c.words)
		}
	}
	if _, _, ok := Distance(s, addr(t, "03:00.0"), addr(t, "09:00.0")); ok {
		t.Error("a missing function has a distance")
	}
	if got := Relation(s, addr(t, "09:00.0"), addr(t, "03:00.0")); !strings.Contains(got, "unknown") {
		t.Error(got)
	}
}
