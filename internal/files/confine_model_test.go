// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// way is how files of a copy are found, and how they are opened to be read.
type way struct {
	name   string
	change func(*confined)
}

var ways = []way{
	{"openat2", func(*confined) {}},
	{"openat2 without proc", withoutProc},
	{"walk", func(c *confined) { c.walks = true }},
	{"walk without proc", func(c *confined) { c.walks = true; withoutProc(c) }},
}

func withoutProc(c *confined) {
	_ = unix.Close(c.self)
	c.self = -1
}

// confine confines a directory in one of the ways. On a kernel that does not have or permit openat2, these are the walks.
func (w way) confine(t testing.TB, dir string) (*confined, func()) {
	t.Helper()
	c, err := newConfined(dir)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Openat2(c.fd, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err == nil {
		_ = unix.Close(fd)
	}
	if c.walks != (err != nil) {
		t.Fatalf("walks: %v, openat2: %v", c.walks, err)
	}
	if c.walks && !strings.HasPrefix(w.name, "walk") {
		t.Skip("no openat2 here: ", err)
	}
	w.change(c)
	return c, c.enter(dir)
}

// A confined copy answers as the tree of the same files does, in which links and names that lead up beyond the root
// stay there, and absolute links start there.
func TestCopyIsLikeATree(t *testing.T) {
	const trees, names = 60, 60
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			for seed := range uint64(trees) {
				m := newMachine(t, seed, func(m machine, at string) string {
					slash := strings.Repeat("/", m.rand.IntN(2)) // at the end
					if m.rand.IntN(3) == 0 {
						return "/" + strings.Repeat("../", m.rand.IntN(2)) + m.name() + slash
					}
					return strings.Repeat("../", m.rand.IntN(7)) + m.name() + slash
				})
				in, unmount := Mount(m.Tree)
				_, release := w.confine(t, m.root)
				for range names {
					at, other := m.path(), m.path()
					if want, got := answers(in, at), answers(m.root, at); got != want {
						t.Fatalf("seed %d: %s:\n%s\nin the tree:\n%s", seed, at, got, want)
					}
					if want, got := same(in, at, other), same(m.root, at, other); got != want {
						t.Fatalf("seed %d: %s is %s: %v, in the tree %v", seed, at, other, got, want)
					}
					if want, got := below(in, at, other), below(m.root, at, other); got != want {
						t.Fatalf("seed %d: %s in the directory %s: %s, in the tree %s", seed, other, at, got, want)
					}
				}
				unmount()
				release()
			}
		})
	}
}

// path is a random name of which parts lead up or nowhere.
func (m machine) path() string {
	at := m.name()
	for range m.rand.IntN(3) {
		at = []string{"/", "", "./", "../", "../../", at + "/", at + "/../", at + "//", at + "/./"}[m.rand.IntN(9)] + m.name()
	}
	return at + []string{"", "", "", "/", "/.", "/.."}[m.rand.IntN(6)]
}

func same(root, a, b string) bool {
	x, err1 := Stat(root + "/" + a)
	y, err2 := Stat(root + "/" + b)
	return err1 == nil && err2 == nil && SameFile(x, y)
}

// below reads a file by an open directory.
func below(root, dir, name string) string {
	d, err := OpenDir(root + "/" + dir)
	if err != nil {
		return "no directory"
	}
	defer d.Close()
	data, err := d.ReadFile(name)
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	return string(data)
}

// The errors of a copy are those of package os, with the name that was asked for.
func TestErrorsOfACopyAreThoseOfPackageOS(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"file": "text", "loop": "-> loop"})
	ask := func(dir string) []error {
		_, err1 := ReadFile(dir + "/none")
		_, err2 := ReadFile(dir + "/file/a")
		_, err3 := Readlink(dir + "/file")
		_, err4 := Stat(dir + "/loop")
		_, err5 := Lstat(dir + "/none")
		_, err6 := ReadDir(dir + "/file")
		_, err7 := Open(dir + "/loop")
		_, err8 := ReadFile(dir)
		_, err9 := EvalSymlinks(dir + "/none")
		return []error{err1, err2, err3, err4, err5, err6, err7, err8, err9}
	}
	want := ask(root)
	for _, w := range ways {
		_, release := w.confine(t, root)
		for i, err := range ask(root) {
			x, ok1 := errors.AsType[*os.PathError](err)
			y, ok2 := errors.AsType[*os.PathError](want[i])
			if !ok1 || !ok2 || x.Path != y.Path || x.Err != y.Err {
				t.Errorf("%s: %v, package os: %v", w.name, err, want[i])
			}
		}
		release()
	}
}

// put makes files, and of a text "-> TARGET" a link.
func put(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(name), 0o700)
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = errors.Join(err, os.Symlink(target, name))
		} else {
			err = errors.Join(err, os.WriteFile(name, []byte(text), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
