// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// put writes a text to a place, as commands do.
func put(path, text string) error {
	o, err := Create(path)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(o, text); err != nil {
		return errors.Join(err, o.Drop())
	}
	return o.Keep(0o644)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// names are what a directory has.
func names(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	must(t, err)
	var out []string
	for _, e := range all {
		out = append(out, e.Name())
	}
	return out
}

// Regular files are replaced, those behind links too; the links stay.
func TestOutFileReplaces(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700))
	file := filepath.Join(dir, "a/file")
	must(t, os.WriteFile(file, []byte("old"), 0o600))
	must(t, os.Symlink("file", filepath.Join(dir, "a/near")))
	must(t, os.Symlink("a/b", filepath.Join(dir, "deep")))
	must(t, os.Symlink("../near", filepath.Join(dir, "a/b/far")))
	must(t, os.Symlink("deep/../new", filepath.Join(dir, "dangling")))
	for path, at := range map[string]string{
		"a/file": "a/file", "a/near": "a/file", "deep/far": "a/file", "dangling": "a/new",
	} {
		must(t, put(filepath.Join(dir, path), path))
		if text, err := os.ReadFile(filepath.Join(dir, at)); err != nil || string(text) != path {
			t.Errorf("by %s, %s has %q, %v", path, at, text, err)
		}
	}
	for _, link := range []string{"a/near", "deep", "a/b/far", "dangling"} {
		if st, err := os.Lstat(filepath.Join(dir, link)); err != nil || st.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is no link any more: %v", link, err)
		}
	}
	if got := names(t, filepath.Join(dir, "a")); len(got) != 4 {
		t.Errorf("left: %q", got)
	}
}

// A file has no more permissions than the umask leaves, and one that is replaced no more than it had.
func TestOutFileMode(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	dir := t.TempDir()
	for name, c := range map[string]struct{ before, wish, want fs.FileMode }{
		"a new one": {0, 0o644, 0o640}, "a new private one": {0, 0o600, 0o600}, "private": {0o600, 0o644, 0o600}, "open": {0o644, 0o644, 0o644}, "open, and private now": {0o644, 0o600, 0o600},
	} {
		file := filepath.Join(dir, name)
		if c.before != 0 {
			must(t, os.WriteFile(file, nil, 0o600))
			must(t, os.Chmod(file, c.before))
		}
		o, err := Create(file)
		must(t, err)
		must(t, o.Keep(c.wish))
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != c.want {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
}

// A FIFO gets the text, also through a link, and is not replaced.
func TestOutFileWritesThrough(t *testing.T) {
	dir := t.TempDir()
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	must(t, unix.Mkfifo(fifo, 0o600))
	must(t, os.Symlink("fifo", link))
	for _, path := range []string{fifo, link} {
		// Open for both, so that neither side waits for the other.
		r, err := os.OpenFile(fifo, os.O_RDWR, 0)
		must(t, err)
		must(t, put(path, "text"))
		got := make([]byte, 4)
		if _, err := io.ReadFull(r, got); err != nil || string(got) != "text" {
			t.Errorf("%q, %v", got, err)
		}
		must(t, r.Close())
		if st, err := os.Lstat(fifo); err != nil || st.Mode()&fs.ModeNamedPipe == 0 {
			t.Errorf("%s is no FIFO any more: %v", fifo, err)
		}
	}
	if got := names(t, dir); len(got) != 2 {
		t.Errorf("left: %q", got)
	}
}

// A device that takes nothing is an error, and stays.
func TestOutFileOnDevices(t *testing.T) {
	dir := t.TempDir()
	full, null := filepath.Join(dir, "full"), filepath.Join(dir, "null")
	for name, minor := range map[string]uint32{full: 7, null: 3} {
		if err := unix.Mknod(name, unix.S_IFCHR|0o600, int(unix.Mkdev(1, minor))); err != nil {
			t.Skipf("no device file can be made: %v", err)
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Skipf("no device file can be opened there: %v", err)
		}
		must(t, f.Close())
	}
	if err := put(full, "text"); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a full device: %v", err)
	}
	must(t, put(null, "text"))
	for _, name := range []string{full, null} {
		if st, err := os.Lstat(name); err != nil || st.Mode()&fs.ModeCharDevice == 0 {
			t.Errorf("%s is no device any more: %v", name, err)
		}
	}
}

// Create refuses a path that cannot be written, and changes nothing there.
func TestOutFileRefuses(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("b", filepath.Join(dir, "a")))
	must(t, os.Symlink("a", filepath.Join(dir, "b")))
	for path, want := range map[string]error{dir: unix.EISDIR, filepath.Join(dir, "none/file"): fs.ErrNotExist, filepath.Join(dir, "a"): unix.ELOOP} {
		if _, err := Create(path); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// One that became a FIFO meanwhile.
	path := filepath.Join(dir, "file")
	o, err := Create(path)
	must(t, err)
	must(t, unix.Mkfifo(path, 0o600))
	if err := o.Keep(0o644); err == nil {
		t.Error("a FIFO was replaced")
	}
	// One that was dropped.
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, []byte("old"), 0o600))
	o, err = Create(path)
	must(t, err)
	must(t, errors.Join(o.Drop(), o.Drop()))
	if text, err := os.ReadFile(path); string(text) != "old" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if got := names(t, dir); len(got) != 3 {
		t.Errorf("left: %q", got)
	}
}

// The error names the output once, the errno by name, and the remedy.
func TestUnwritten(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	for path, c := range map[string]struct {
		errno  unix.Errno
		remedy string
	}{
		filepath.Join(dir, "none/x"):  {unix.ENOENT, "make its directory, or give --csv a path in one that exists"},
		dir:                           {unix.EISDIR, "give --csv the path of a file"},
		filepath.Join(dir, "file/x"):  {unix.ENOTDIR, "give --csv the path of a file"},
		filepath.Join(dir, "loop"):    {unix.ELOOP, "give --csv the path of a file"},
		"/dev/full":                   {unix.ENOSPC, "free space there"},
		"/proc/sys/kernel/osrelease1": {unix.ENOENT, "give --csv a path in a directory in which files can be made"},
	} {
		err := put(path, "text")
		if err == nil {
			t.Errorf("%s was written", path)
			continue
		}
		e := Explain(Unwritten("the table", "--csv", path, err))
		if len(e) != 1 || e[0].Errno == nil || e[0].Errno.Number != int(c.errno) || !strings.Contains(e[0].Remedy, c.remedy) ||
			e[0].Device != path || strings.Count(e[0].Message, path) != 1 || strings.Contains(e[0].Message, "/.") {
			t.Errorf("%s: %+v", path, e)
		}
	}
}
