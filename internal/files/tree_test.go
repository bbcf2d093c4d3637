// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// answers is what the functions of this package say of a name. root is the tree's, which no answer has.
func answers(root, name string) string {
	full := root + "/" + name
	errno := func(err error) string {
		var e unix.Errno
		switch {
		case err == nil:
			return "nil"
		case errors.As(err, &e):
			return unix.ErrnoName(e)
		}
		// filepath's own words for too many links.
		return "ELOOP"
	}
	var out []string
	add := func(what string, err error, value any) {
		if err != nil {
			value = ""
		}
		out = append(out, strings.ReplaceAll(fmt.Sprintf("%s: %s %v", what, errno(err), value), root, "ROOT"))
	}
	kind := func(st fs.FileInfo) string {
		if st == nil {
			return ""
		}
		size := st.Size()
		if st.Mode().Type() != 0 {
			size = 0
		}
		return fmt.Sprint(st.Name(), st.Mode().Type(), size, st.IsDir())
	}
	data, err := ReadFile(full)
	add("ReadFile", err, string(data))
	st, err := Stat(full)
	add("Stat", err, kind(st))
	st, err = Lstat(full)
	add("Lstat", err, kind(st))
	link, err := Readlink(full)
	add("Readlink", err, link)
	real, err := EvalSymlinks(full)
	add("EvalSymlinks", err, real)
	list, err := ReadDir(full)
	var names []string
	for _, e := range list {
		names = append(names, e.Name()+e.Type().String())
	}
	add("ReadDir", err, names)
	dir, err := OpenDir(full)
	add("OpenDir", err, "")
	if err == nil {
		data, err = dir.ReadFile("a")
		add("a", err, string(data))
		_ = dir.Close()
	}
	if f, err := Open(full); err == nil {
		data, err = io.ReadAll(f)
		add("Open", err, string(data))
		_ = f.Close()
	} else {
		add("Open", err, "")
	}
	return strings.Join(out, "\n")
}

// machine is a random tree, and the same files on a disk.
type machine struct {
	*Tree
	root string
	rand *rand.Rand
}

// newMachine makes files, directories, and links that lead up, down, to each other and to themselves: by the texts of
// link.
func newMachine(t *testing.T, seed uint64, link func(m machine, at string) string) machine {
	root := t.TempDir()
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	m := machine{NewTree(), root, rand.New(rand.NewPCG(seed, 1))}
	for range 5 + m.rand.IntN(20) {
		at := m.name()
		// On a disk a name may lead through a link; in a tree it may not. Such names are left out.
		if through(m.Tree, at) {
			continue
		}
		onDisk := filepath.Join(root, at)
		if os.MkdirAll(filepath.Dir(onDisk), 0o700) != nil {
			continue
		}
		var err1, err2 error
		switch m.rand.IntN(3) {
		case 0:
			err1, err2 = m.AddDir(at), os.Mkdir(onDisk, 0o700)
			if errors.Is(err2, fs.ErrExist) && err1 == nil {
				err2 = nil // a directory that is there stays
			}
		case 1:
			text := strings.Repeat(m.word(), m.rand.IntN(100))
			err1 = m.AddFile(at, []byte(text))
			if _, err := os.Lstat(onDisk); err == nil {
				err2 = fs.ErrExist
			} else {
				err2 = os.WriteFile(onDisk, []byte(text), 0o600)
			}
		case 2:
			target := link(m, at)
			err1, err2 = m.AddLink(at, target), os.Symlink(target, onDisk)
		}
		if (err1 == nil) != (err2 == nil) {
			t.Fatalf("seed %d: %s: %v, %v on disk", seed, at, err1, err2)
		}
	}
	return m
}

func (m machine) word() string { return string(rune('a' + m.rand.IntN(4))) }

func (m machine) name() string {
	parts := make([]string, 1+m.rand.IntN(4))
	for i := range parts {
		parts[i] = m.word()
	}
	return strings.Join(parts, "/")
}

// A tree in memory answers as the kernel does for the same files on a disk: thousands of names that pass through the
// links of random trees.
func TestTreeIsLikeADirectory(t *testing.T) {
	const trees, names = 150, 60
	for seed := range uint64(trees) {
		m := newMachine(t, seed, func(m machine, at string) string {
			return strings.Repeat("../", m.rand.IntN(strings.Count(at, "/")+1)) + m.name()
		})
		in, done := Mount(m.Tree)
		for range names {
			at := m.name()
			if m.rand.IntN(3) == 0 {
				at = path.Join(at) + "/../" + m.word()
			}
			if want, got := answers(m.root, at), answers(in, at); got != want {
				t.Fatalf("seed %d: %s:\n%s\non disk:\n%s", seed, at, got, want)
			}
		}
		done()
		if _, err := Lstat(in + "/a"); !errors.Is(err, unix.ENOTDIR) {
			t.Fatalf("after the end: %v", err)
		}
	}
}

// through reports a name that has a link on the way.
func through(t *Tree, name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if n, err := t.find(dir, false); err == nil && n.link != "" {
			return true
		}
	}
	return false
}

// Links stay within the tree, as in a directory that is the root of a process.
func TestLinksStayInTheTree(t *testing.T) {
	tree := NewTree()
	for name, to := range map[string]string{"up": "../../../etc", "absolute": "/etc", "a/b/up": "../../../../etc/file", "loop": "loop"} {
		if err := tree.AddLink(name, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.AddFile("etc/file", []byte("ours")); err != nil {
		t.Fatal(err)
	}
	in, done := Mount(tree)
	defer done()
	for _, name := range []string{"up/file", "absolute/file", "a/b/up", "../../etc/file", "a/../../../etc/file"} {
		if data, err := ReadFile(in + "/" + name); string(data) != "ours" || err != nil {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := Stat(in + "/loop"); !errors.Is(err, unix.ELOOP) {
		t.Error(err)
	}
	if err := tree.AddFile("up/file", nil); !errors.Is(err, ErrTaken) {
		t.Errorf("a file below a link: %v", err)
	}
	if err := tree.AddFile("etc/file", nil); !errors.Is(err, ErrTaken) {
		t.Errorf("a file twice: %v", err)
	}
	if tree.Len() != 8 || tree.Bytes() == 0 {
		t.Errorf("%d files, %d bytes", tree.Len(), tree.Bytes())
	}
	x, err1 := Stat(in + "/etc/file")
	y, err2 := Stat(in + "/up/file")
	z, err3 := os.Stat(os.DevNull)
	if errors.Join(err1, err2, err3) != nil || !SameFile(x, y) || SameFile(x, z) || SameFile(z, x) || !SameFile(z, z) {
		t.Error(err1, err2, err3)
	}
}

// The name that is asked for bounds how much is read, whatever file a link leads to.
func TestTreeFilesHaveALimit(t *testing.T) {
	tree := NewTree()
	large := make([]byte, smallLimit+1)
	if err := errors.Join(tree.AddFile("boot/config-1", large), tree.AddLink("sys/attribute", "../boot/config-1")); err != nil {
		t.Fatal(err)
	}
	in, done := Mount(tree)
	defer done()
	if data, err := ReadFile(in + "/boot/config-1"); len(data) != len(large) || err != nil {
		t.Error(len(data), err)
	}
	if _, err := ReadFile(in + "/sys/attribute"); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if f, err := Open(in + "/sys/attribute"); !errors.Is(err, ErrTooLarge) {
		t.Error(f, err)
	}
}
