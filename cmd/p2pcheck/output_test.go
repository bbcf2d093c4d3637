// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// A file that is written for others is there as a whole, or not at all.
func TestOutput(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	file := filepath.Join(t.TempDir(), "p2pcheck.prom")
	if r := command("--root", root, "--format", "prometheus", "-o", file); r.status != 0 || r.out != "" || r.err != "" {
		t.Errorf("%+v", r)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	exposition(t, string(text))
	names, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	if r := command("--root", root, "-o", filepath.Join(file, "none")); r.status != cli.ExitUsage || r.err == "" {
		t.Errorf("%+v", r)
	}
	plain := command("--root", root)
	if r := command("--root", root, "-o", "-"); r != plain {
		t.Errorf("by -o -: %+v", r)
	}
}

// A file of -o that is no regular file is written to, and not replaced.
func TestOutputThrough(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	dir := t.TempDir()
	file, link, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Symlink("file", link), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	want := command("--root", root, "--format", "nfd").out
	if r := command("--root", root, "--format", "nfd", "-o", link); r.status != 0 {
		t.Errorf("%+v", r)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != want {
		t.Errorf("behind the link: %q, %v", text, err)
	}
	r, err := os.OpenFile(fifo, os.O_RDWR, 0) // neither side waits for the other
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r := command("--root", root, "--format", "nfd", "-o", fifo); r.status != 0 {
		t.Errorf("%+v", r)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Errorf("from the FIFO: %q, %v", got, err)
	}
	for name, mode := range map[string]fs.FileMode{link: fs.ModeSymlink, fifo: fs.ModeNamedPipe} {
		if st, err := os.Lstat(name); err != nil || st.Mode().Type() != mode {
			t.Errorf("%s was replaced: %v", name, err)
		}
	}
	// The same numbers as /dev/full.
	full := filepath.Join(dir, "full")
	if err := unix.Mknod(full, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 7))); err != nil {
		t.Skipf("no device file can be made: %v", err)
	}
	if f, err := os.OpenFile(full, os.O_WRONLY, 0); err != nil {
		t.Skipf("no device file can be opened there: %v", err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--root", root, "-o", full}, {"--root", root, "--format", "prometheus", "-o", full}, {"snapshot", full, "--root", root}} {
		if r := command(args...); r.status != cli.ExitUsage || !strings.Contains(r.err, "no space left") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if st, err := os.Lstat(full); err != nil || st.Mode()&fs.ModeCharDevice == 0 {
		t.Errorf("the device was replaced: %v", err)
	}
}
