// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountPoint is a name below which no machine has a file: /dev/full is no directory.
const mountPoint = "/dev/full/p2pcheck-"

var mounts atomic.Uint64 // so far

// mounted is a tree that can be read.
type mounted struct {
	*Tree
	budget
}

// Mount makes a tree readable by the functions of this package, below the directory that it returns. No other
// program sees it. It is for one look at the machine that it has: after many more accesses than that needs, all
// answers are [ErrRepeats].
func Mount(t *Tree) (dir string, unmount func()) {
	dir = fmt.Sprint(mountPoint, mounts.Add(1))
	m := &mounted{Tree: t}
	m.files.Store(int64(t.Len()))
	change(func(all *places) { all.trees[dir] = m })
	return dir, func() { change(func(all *places) { delete(all.trees, dir) }) }
}

// split is the directory of a tree and the name of a file in it. ok is false if the name is of no tree.
func split(name string) (dir, in string, ok bool) {
	rest, ok := strings.CutPrefix(name, mountPoint)
	number, in, _ := strings.Cut(rest, "/")
	return mountPoint + number, in, ok
}

// node finds a file of the tree, for an operation.
func (m *mounted) node(op, name string, follow bool) (n *node, err error) {
	_, at, _ := split(name)
	if err = m.take(); err == nil {
		n, err = m.find(at, follow)
	}
	if err == nil && op == "open" && int64(len(n.data)) > limit(at) {
		err = tooLarge(limit(at))
	}
	return n, wrapped(op, name, err)
}

// Open opens a file. A directory can be opened, too, and not be read.
func (m *mounted) Open(name string) (io.ReadCloser, error) {
	n, err := m.node("open", name, true)
	switch {
	case err != nil:
		return nil, err
	case n.below != nil:
		return io.NopCloser(openDirectory(n.name)), nil
	}
	return io.NopCloser(bytes.NewReader(n.data)), nil
}

// ReadFile is what a file has, in memory that the caller may change.
func (m *mounted) ReadFile(name string) ([]byte, error) {
	n, err := m.node("open", name, true)
	switch {
	case err != nil:
		return nil, err
	case n.below != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: unix.EISDIR}
	}
	return bytes.Clone(n.data), nil
}

func (m *mounted) OpenDir(name string) (Dir, error) {
	_, err := m.directory(name)
	return Dir{fd: unix.AT_FDCWD, name: name}, err
}

func (m *mounted) directory(name string) (*node, error) {
	n, err := m.node("open", name, true)
	if err == nil && n.below == nil {
		err = &fs.PathError{Op: "open", Path: name, Err: unix.ENOTDIR}
	}
	return n, err
}

func (m *mounted) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := m.directory(name)
	if err != nil {
		return nil, err
	}
	out := make([]fs.DirEntry, 0, len(n.below))
	for _, x := range n.below {
		out = append(out, info{x, x.name})
	}
	slices.SortFunc(out, func(x, y fs.DirEntry) int { return strings.Compare(x.Name(), y.Name()) })
	return out, nil
}

func (m *mounted) Readlink(name string) (string, error) {
	n, err := m.node("readlink", name, false)
	switch {
	case err != nil:
		return "", err
	case n.link == "":
		return "", &fs.PathError{Op: "readlink", Path: name, Err: unix.EINVAL}
	}
	return n.link, nil
}

func (m *mounted) Stat(name string) (fs.FileInfo, error)  { return m.info("stat", name, true) }
func (m *mounted) Lstat(name string) (fs.FileInfo, error) { return m.info("lstat", name, false) }

// info describes a file under the last part of the name that was asked for.
func (m *mounted) info(op, name string, follow bool) (fs.FileInfo, error) {
	n, err := m.node(op, name, follow)
	if err != nil {
		return nil, err
	}
	return info{n, filepath.Base(name)}, nil
}

func (m *mounted) EvalSymlinks(name string) (string, error) {
	n, err := m.node("lstat", name, true)
	if err != nil {
		return "", err
	}
	dir, _, _ := split(name)
	return dir + n.path(), nil
}

// openDirectory is an open directory, by its name.
type openDirectory string

func (d openDirectory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: string(d), Err: unix.EISDIR}
}

// SameFile is os.SameFile.
func SameFile(a, b fs.FileInfo) bool {
	x, ok1 := a.(info)
	y, ok2 := b.(info)
	if ok1 || ok2 {
		return ok1 && ok2 && x.node == y.node
	}
	if a == nil || b == nil {
		return false
	}
	v, ok1 := a.Sys().(*syscall.Stat_t)
	w, ok2 := b.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && v.Dev == w.Dev && v.Ino == w.Ino
}
