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

func contents(n *node) ([]byte, error) {
	if n.below != nil {
		return nil, unix.EISDIR
	}
	return n.data, nil
}

// copyOfContents are the contents in memory that the caller may change.
func copyOfContents(n *node) ([]byte, error) {
	data, err := contents(n)
	return bytes.Clone(data), err
}

func entries(n *node) ([]fs.DirEntry, error) {
	if n.below == nil {
		return nil, unix.ENOTDIR
	}
	out := make([]fs.DirEntry, 0, len(n.below))
	for _, x := range n.below {
		out = append(out, info{x, x.name})
	}
	slices.SortFunc(out, func(x, y fs.DirEntry) int { return strings.Compare(x.Name(), y.Name()) })
	return out, nil
}

func target(n *node) (string, error) {
	if n.link == "" {
		return "", unix.EINVAL
	}
	return n.link, nil
}

// named describes a node under the last part of the name that was asked for.
func named(name string) func(*node) (fs.FileInfo, error) {
	return func(n *node) (fs.FileInfo, error) { return info{n, filepath.Base(name)}, nil }
}

// reader is an open file of a tree. A directory can be opened, too, and not be read.
func reader(n *node) (io.ReadCloser, error) {
	if n.below != nil {
		return io.NopCloser(directory(n.name)), nil
	}
	return io.NopCloser(bytes.NewReader(n.data)), nil
}

// directory is an open directory, by its name.
type directory string

func (d directory) Read([]byte) (int, error) {
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

// Canonical is filepath.EvalSymlinks, without asking a test.
func Canonical(name string) (string, error) {
	inTree := func(n *node) (string, error) {
		dir, _, _ := split(name)
		return dir + n.path(), nil
	}
	if real, ok, err := in("lstat", name, true, inTree, file.real); ok {
		return real, err
	}
	return filepath.EvalSymlinks(name)
}
