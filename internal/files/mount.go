// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// mountPoint is a name below which no machine has a file: /dev/full is no directory.
const mountPoint = "/dev/full/p2pcheck-"

var (
	mounting sync.Mutex
	mounts   atomic.Pointer[map[string]*Tree]
	mounted  atomic.Uint64 // so far
)

// Mount makes a tree readable by the functions of this package, below the directory that it returns. No other
// program sees it.
func Mount(t *Tree) (dir string, unmount func()) {
	dir = fmt.Sprint(mountPoint, mounted.Add(1))
	change := func(edit func(map[string]*Tree)) {
		mounting.Lock()
		defer mounting.Unlock()
		all := map[string]*Tree{}
		if now := mounts.Load(); now != nil {
			for at, t := range *now {
				all[at] = t
			}
		}
		edit(all)
		mounts.Store(&all)
	}
	change(func(all map[string]*Tree) { all[dir] = t })
	return dir, func() { change(func(all map[string]*Tree) { delete(all, dir) }) }
}

// treeOf is the tree that has a file, and the file's name there; nil if this machine has it.
func treeOf(name string) (t *Tree, at, in string) {
	rest, ok := strings.CutPrefix(name, mountPoint)
	if !ok {
		return nil, "", ""
	}
	number, in, _ := strings.Cut(rest, "/")
	at = mountPoint + number
	if all := mounts.Load(); all != nil {
		t = (*all)[at]
	}
	return t, at, in
}

// InTree reports a file of a tree.
func InTree(name string) bool {
	t, _, _ := treeOf(name)
	return t != nil
}

// in calls f with a node of a tree. ok is false for a file of this machine.
func in[T any](op, name string, follow bool, f func(*node) (T, error)) (out T, ok bool, err error) {
	t, _, at := treeOf(name)
	if t == nil {
		return out, false, nil
	}
	n, err := t.find(at, follow)
	if err == nil {
		out, err = f(n)
	}
	if err != nil {
		return out, true, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return out, true, nil
}

func contents(n *node) ([]byte, error) {
	if n.below != nil {
		return nil, unix.EISDIR
	}
	return n.data, nil
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
		return io.NopCloser(directory{n}), nil
	}
	return io.NopCloser(bytes.NewReader(n.data)), nil
}

type directory struct{ *node }

func (d directory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: unix.EISDIR}
}

// SameFile is os.SameFile.
func SameFile(a, b fs.FileInfo) bool {
	x, ok1 := a.(info)
	y, ok2 := b.(info)
	if ok1 || ok2 {
		return ok1 && ok2 && x.node == y.node
	}
	return os.SameFile(a, b)
}

// Canonical is filepath.EvalSymlinks, without asking a test.
func Canonical(name string) (string, error) {
	_, at, _ := treeOf(name)
	if real, ok, err := in("lstat", name, true, func(n *node) (string, error) { return at + n.path(), nil }); ok {
		return real, err
	}
	return filepath.EvalSymlinks(name)
}
