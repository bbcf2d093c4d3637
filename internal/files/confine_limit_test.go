// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sparse makes a file that is all holes.
func sparse(t *testing.T, root, name string, size int64) {
	t.Helper()
	put(t, root, map[string]string{name: ""})
	if err := os.Truncate(filepath.Join(root, name), size); err != nil {
		t.Skip("such a file cannot be made here: ", err)
	}
}

// limited reports an error that says a limit.
func limited(err error, limit string) bool {
	return errors.Is(err, ErrTooLarge) && strings.Contains(err.Error(), limit)
}

func TestConfinedFilesHaveALimit(t *testing.T) {
	root := t.TempDir()
	for dir, size := range map[string]int64{"sys/fits": smallLimit, "proc/fits": smallLimit, "boot/config-fits": mediumLimit, "proc/1/fits": smallLimit} {
		sparse(t, root, dir, size)
		sparse(t, root, strings.Replace(dir, "fits", "exceeds", 1), size+1)
	}
	each(t, root, func(t *testing.T) {
		for _, dir := range []struct {
			name, file, limit string
			size              int
		}{{"sys", "", "64 KiB", smallLimit}, {"proc", "", "64 KiB", smallLimit}, {"//proc/../sys/.", "", "64 KiB", smallLimit}, {"boot", "config-", "1024 KiB", mediumLimit}} {
			at, err := OpenDir(root + "/" + dir.name)
			if err != nil {
				t.Fatal(err)
			}
			if data, err := ReadFile(root + "/" + dir.name + "/" + dir.file + "fits"); len(data) != dir.size || err != nil {
				t.Errorf("%s: %d, %v", dir.name, len(data), err)
			}
			if data, err := ReadFile(root + "/" + dir.name + "/" + dir.file + "exceeds"); data != nil || !limited(err, dir.limit) {
				t.Errorf("%s: %d, %v", dir.name, len(data), err)
			}
			if data, err := at.ReadFile(dir.file + "exceeds"); data != nil || !limited(err, dir.limit) {
				t.Errorf("%s: %d, %v", dir.name, len(data), err)
			}
			_ = at.Close()
		}
	})
}

func TestConfinedSparseFileIsNotRead(t *testing.T) {
	root := t.TempDir()
	sparse(t, root, "file", 1<<40)
	each(t, root, func(t *testing.T) {
		if data, err := ReadFile(filepath.Join(root, "file")); data != nil || !limited(err, "64 KiB") {
			t.Errorf("%d, %v", len(data), err)
		}
		if st, err := Stat(filepath.Join(root, "file")); err != nil || st.Size() != 1<<40 {
			t.Error(err)
		}
	})
}

// A stream has the part up to the limit. A file that is larger is not opened.
func TestConfinedStreamHasALimit(t *testing.T) {
	root := t.TempDir()
	sparse(t, root, "proc/kallsyms", symbolLimit)
	sparse(t, root, "large/kallsyms", 1<<40)
	each(t, root, func(t *testing.T) {
		if f, err := Open(filepath.Join(root, "large/kallsyms")); f != nil || !limited(err, "65536 KiB") {
			t.Errorf("%v, %v", f, err)
		}
		for name, limit := range map[string]string{"proc/kallsyms": ""} {
			f, err := Open(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			// Another size of parts than a divisor of the limit.
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, f, make([]byte, 1e6))
			if n != symbolLimit || limit == "" && err != nil || limit != "" && !limited(err, limit) {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			if n, err := f.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("%s, at its end: %d, %v", name, n, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if _, err := f.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s, when closed: %v", name, err)
			}
			if err := f.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s, closed twice: %v", name, err)
			}
		}
	})
}

// A file whose size is said to be zero, and that does not end, has the limit too.
func TestEndlessFileHasALimit(t *testing.T) {
	f, err := os.Open("/dev/zero")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	s := &stream{fd: int(f.Fd()), name: "zero", limit: smallLimit, left: smallLimit}
	if n, err := io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{s}); n != smallLimit || !limited(err, "64 KiB") {
		t.Errorf("%d, %v", n, err)
	}
	if data, err := readAll(int(f.Fd()), "zero", nil, smallLimit); data != nil || !limited(err, "64 KiB") {
		t.Errorf("%d, %v", len(data), err)
	}
}

// names makes as many files in a directory. They are links to a few, as these are made sooner.
func names(t *testing.T, dir string, count int) {
	t.Helper()
	const links = 50_000 // to one file; some file systems have no more than 65,000
	first := ""
	for i := range count {
		name := filepath.Join(dir, fmt.Sprint(i))
		if i%links == 0 {
			put(t, dir, map[string]string{fmt.Sprint(i): ""})
			first = name
		} else if err := os.Link(first, name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConfinedDirectoryHasALimit(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "") // in memory it takes a second
	if err != nil {
		root = t.TempDir()
	}
	defer os.RemoveAll(root)
	names(t, filepath.Join(root, "fits"), namesLimit)
	names(t, filepath.Join(root, "exceeds"), 2*namesLimit)
	each(t, root, func(t *testing.T) {
		if list, err := ReadDir(filepath.Join(root, "exceeds")); list != nil || !limited(err, "100000 names") {
			t.Errorf("%d, %v", len(list), err)
		}
		list, err := ReadDir(filepath.Join(root, "fits"))
		if len(list) != namesLimit || err != nil {
			t.Fatalf("%d, %v", len(list), err)
		}
		if list[0].Name() != "0" || list[1].Name() != "1" || list[2].Name() != "10" || list[namesLimit-1].Name() != "99999" {
			t.Errorf("from %s to %s", list[0], list[namesLimit-1])
		}
	})
}
