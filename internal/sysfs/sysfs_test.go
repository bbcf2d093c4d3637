// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func fixture(t *testing.T) FS {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"devices/pci0000:00/0000:00:01.0/vendor":    "0x10de\n",
		"devices/pci0000:00/0000:00:01.0/numa_node": "-1\n",
		"devices/pci0000:00/0000:00:01.0/label":     "two words \n\n",
		"bus/pci/drivers/nvidia/bind":               "",
		"class/drm/card10/dev":                      "226:10",
		"class/drm/card2/dev":                       "226:2",
		"class/drm/version":                         "drm 1.1.0",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"devices/pci0000:00/0000:00:01.0/driver": "../../../bus/pci/drivers/nvidia",
		"class/drm/card2/device":                 "../../../devices/pci0000:00/0000:00:01.0",
		"class/drm/outside":                      os.TempDir(),
		"class/drm/dangling":                     "nowhere",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return New(dir)
}

func TestRead(t *testing.T) {
	s := fixture(t)
	const dev = "class/drm/card2/device/"
	if got, err := s.ReadString(dev + "label"); got != "two words" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := s.ReadUint(dev+"vendor", 16); got != 0x10de || err != nil {
		t.Errorf("%#x, %v", got, err)
	}
	if got, err := s.ReadInt(dev + "numa_node"); got != -1 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := s.ReadUint(dev+"vendor", 8); err == nil {
		t.Error("0x10de fits 8 bits")
	}
	if _, err := s.ReadInt(dev + "label"); err == nil {
		t.Error("words are a number")
	}
	for _, f := range []func() error{
		func() error { _, err := s.ReadString("none"); return err },
		func() error { _, err := s.ReadInt("none"); return err },
		func() error { _, err := s.ReadUint("none", 8); return err },
		func() error { _, err := s.Link("none"); return err },
		func() error { _, err := s.List("none"); return err },
		func() error { _, err := s.Resolve("none"); return err },
		func() error { _, err := s.Resolve("class/drm/dangling"); return err },
		func() error { _, err := New(s.Path("none")).Resolve("x"); return err },
	} {
		if err := f(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v, want ErrNotExist", err)
		}
	}
}

func TestLinks(t *testing.T) {
	s := fixture(t)
	if got, err := s.Link("class/drm/card2/device/driver"); got != "nvidia" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := s.Resolve("class/drm/card2/device"); got != "devices/pci0000:00/0000:00:01.0" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := s.Resolve("class/drm/outside"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a link out of the tree: %q, %v", got, err)
	}
	if !s.Exists("class/drm/dangling") || s.Exists("class/drm/none") {
		t.Error("Exists is wrong")
	}
}

func TestListIsNatural(t *testing.T) {
	got, err := fixture(t).List("class/drm")
	want := []string{"card2", "card10", "dangling", "outside", "version"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if !naturalLess("a9", "a10") || naturalLess("a10", "a9") || !naturalLess("a01", "a1") || naturalLess("b1", "a2") {
		t.Error("naturalLess is wrong")
	}
	if _, n := splitNumber("x99999999999999999999999"); n != math.MaxUint64 {
		t.Errorf("a number beyond 64 bits became %d", n)
	}
}

func TestLiveRoot(t *testing.T) {
	if (FS{}).Root() != "/sys" || New("").Path("class") != "/sys/class" {
		t.Error("the zero value is not /sys")
	}
}
