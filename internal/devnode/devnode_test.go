// SPDX-License-Identifier: Apache-2.0

package devnode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestExplain(t *testing.T) {
	dir := t.TempDir()
	node := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, path     string
		err            error
		detail, remedy string
	}{
		{"group may", node("group", 0o660), unix.EACCES, "mode 0660", "member of group"},
		{"world may", node("world", 0o666), unix.EPERM, "mode 0666", "device cgroup"},
		{"root only", node("root", 0o600), unix.EACCES, "mode 0600", "udev rule"},
		{"hidden", filepath.Join(dir, "none"), unix.EACCES, "may not look", "directory"},
		{"missing", "/dev/none", unix.ENOENT, "no such device node", "modprobe this"},
		{"no driver", "/dev/none", unix.ENXIO, "no driver", "modprobe this"},
		{"fds", "/dev/none", unix.EMFILE, "no file descriptor left", "RLIMIT_NOFILE"},
		{"files", "/dev/none", unix.ENFILE, "no open file left", "fs.file-max"},
		{"other", "/dev/none", unix.EIO, "", ""},
	} {
		detail, remedy := Explain(c.path, &os.PathError{Op: "open", Path: c.path, Err: c.err}, "modprobe this")
		if !strings.Contains(detail, c.detail) || !strings.Contains(remedy, c.remedy) || (c.detail == "") != (detail == "") {
			t.Errorf("%s: %q, %q; want %q and %q in them", c.name, detail, remedy, c.detail, c.remedy)
		}
	}
}
