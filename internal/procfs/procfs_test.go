// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func fixture(t *testing.T, files map[string]string) FS {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return New(dir)
}

func TestMemAvailable(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:  100 kB\nMemAvailable:     2048 kB\n": 2 << 20,
		"MemAvailable: 0 kB\n":                           0,
		"MemTotal: 100 kB\n":                             -1,
		"MemAvailable: many kB\n":                        -1,
		"MemAvailable: -1 kB\n":                          -1,
		"MemAvailable: 9223372036854775807 kB\n":         -1,
	} {
		got, err := fixture(t, map[string]string{"meminfo": text}).MemAvailable()
		if want < 0 && err == nil || want >= 0 && (got != want || err != nil) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestOpenFiles(t *testing.T) {
	for text, want := range map[string]int64{
		"Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n": 1024,
		"Max open files            unlimited            unlimited            files\n":                                       math.MaxInt64,
		"Max open files\n": -1,
		"":                 -1,
	} {
		got, err := fixture(t, map[string]string{"self/limits": text}).MaxOpenFiles()
		if want < 0 && err == nil || want >= 0 && (got != want || err != nil) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	if n, err := fixture(t, map[string]string{"self/fd/0": "", "self/fd/1": "", "self/fd/7": ""}).OpenFiles(); n != 3 || err != nil {
		t.Errorf("%d, %v; want 3", n, err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	// Counting opens the directory itself, the size does not.
	if n, err := New("").OpenFiles(); err != nil || n < int64(len(entries))-1 || n > int64(len(entries)) {
		t.Errorf("%d open files, %v; the directory lists %d", n, err, len(entries))
	}
	if _, err := New("/nonexistent").OpenFiles(); err == nil {
		t.Error("no error without procfs")
	}
}

func TestMounts(t *testing.T) {
	got, err := fixture(t, map[string]string{"self/mountinfo": `36 23 0:33 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
37 23 0:7 /a\040b /mnt/with\040blank\134 rw - ext4 /dev/sd\141 rw
broken line
`}).Mounts()
	want := []Mount{
		{Root: "/", Point: "/sys/fs/cgroup", Type: "cgroup2", Super: []string{"rw", "nsdelegate"}, Source: "cgroup2"},
		{Root: "/a b", Point: `/mnt/with blank\`, Type: "ext4", Super: []string{"rw"}, Source: "/dev/sda"},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
}

func TestCgroups(t *testing.T) {
	got, err := fixture(t, map[string]string{"self/cgroup": "9:name=systemd:/\n4:memory,blkio:/job:1\n0::/user.slice\nbroken\n"}).Cgroups()
	want := []Cgroup{{[]string{"name=systemd"}, "/"}, {[]string{"memory", "blkio"}, "/job:1"}, {nil, "/user.slice"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`36 23 0:33 / /sys/fs/cgroup\040 rw - cgroup2 cgroup2 rw`)
	f.Add("0::/x")
	f.Fuzz(func(t *testing.T, text string) {
		parseMounts(text)
		parseCgroups(text)
	})
}

func TestLive(t *testing.T) {
	p := New("")
	if n, err := p.MemAvailable(); err != nil || n <= 0 {
		t.Errorf("MemAvailable %d, %v", n, err)
	}
	if n, err := p.MaxOpenFiles(); err != nil || n <= 0 {
		t.Errorf("MaxOpenFiles %d, %v", n, err)
	}
	if m, err := p.Mounts(); err != nil || len(m) == 0 {
		t.Errorf("%d mounts, %v", len(m), err)
	}
}
