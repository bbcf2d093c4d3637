// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// snapshot names the files that it could not read, by their names on the machine.
func TestSnapshotNamesWhatItCouldNotRead(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	file := filepath.Join(t.TempDir(), "s.tar.gz")
	snapshot := func() (outcome, snapshotResult) {
		var d struct{ Result snapshotResult }
		if err := json.Unmarshal([]byte(command("snapshot", file, "--root", root, "--json").out), &d); err != nil {
			t.Fatal(err)
		}
		return command("snapshot", file, "--root", root), d.Result
	}
	if r, d := snapshot(); strings.Contains(r.out, "could not be read") || d.Unreadable != 0 || d.Unread == nil || len(d.Unread) > 0 {
		t.Errorf("%+v, %+v", r, d)
	}
	names := []string{"/proc/cmdline", "/proc/cpuinfo", "/proc/sys/kernel/numa_balancing", "/sys/class/net/eth0/mtu", "/sys/class/net/eth1/mtu"}
	for i, name := range names {
		in := filepath.Join(root, name)
		if err := errors.Join(os.RemoveAll(in), os.Symlink(filepath.Base(in), in)); err != nil {
			t.Fatal(err)
		}
		r, d := snapshot()
		says := "; 1 could not be read, and checks that need it will be unknown: /proc/cmdline\n"
		switch i {
		case 1:
			says = "; 2 could not be read, and checks that need them will be unknown: /proc/cmdline, /proc/cpuinfo\n"
		case 4:
			says = "/proc/cmdline, /proc/cpuinfo, /proc/sys/kernel/numa_balancing, /sys/class/net/eth0/mtu and 1 more\n"
		case 2, 3:
			continue
		}
		if !strings.HasSuffix(r.out, says) || d.Unreadable != i+1 || !slices.Equal(d.Unread, names[:i+1]) {
			t.Errorf("%+v, %+v", r, d)
		}
	}
}

// A user who is not root can enter the directories of a snapshot that tar unpacked.
func TestSnapshotUnpacksByTar(t *testing.T) {
	file, _ := taken(t, testenv.Machines["small-hgx"]())
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dirs := 0
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0o600)
		if h.Typeflag == tar.TypeDir {
			want = 0o700
			dirs++
		}
		if h.Mode != want {
			t.Errorf("%s: mode %#o, want %#o", h.Name, h.Mode, want)
		}
	}
	if dirs == 0 {
		t.Error("no directory")
	}
}
