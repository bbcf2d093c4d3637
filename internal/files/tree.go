// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Tree is the files of a machine in memory, as an archive has them. [Mount] makes them readable.
type Tree struct {
	root  node
	nodes int
	bytes int64
	small map[string][]byte // contents that many files have
	names map[string]string // names that many files have
}

// node is a file, a directory or a symbolic link.
type node struct {
	name   string
	parent *node
	below  map[string]*node // of a directory; nil of others
	link   string           // of a symbolic link; "" of others
	data   []byte
}

// NewTree is an empty tree.
func NewTree() *Tree {
	t := &Tree{root: node{below: map[string]*node{}}, small: map[string][]byte{}, names: map[string]string{}}
	t.root.parent = &t.root
	return t
}

// Len is the number of files, directories and links, those that lead to others included.
func (t *Tree) Len() int { return t.nodes }

// Bytes is the memory that the tree takes, roughly.
func (t *Tree) Bytes() int64 { return t.bytes }

// ErrTaken says that a tree has something else of that name, or on the way to it.
var ErrTaken = errors.New("it is there twice")

// AddDir adds a directory, and those above it. One that is there already stays.
func (t *Tree) AddDir(name string) error {
	_, err := t.dir(name)
	return err
}

// AddFile adds a file, and the directories above it.
func (t *Tree) AddFile(name string, data []byte) error {
	if len(data) <= short {
		if known, ok := t.small[string(data)]; ok {
			data = known
		} else {
			t.small[string(data)] = data
		}
	}
	return t.add(name, node{data: data})
}

// AddLink adds a symbolic link, and the directories above it.
func (t *Tree) AddLink(name, target string) error {
	return t.add(name, node{link: target})
}

// AddUnreadable adds a file that is there and cannot be read: a link to itself.
func (t *Tree) AddUnreadable(name string) error { return t.AddLink(name, path.Base(name)) }

func (t *Tree) add(name string, n node) error {
	at, err := t.dir(path.Dir(name))
	if err != nil {
		return err
	}
	if at.below[path.Base(name)] != nil {
		return ErrTaken
	}
	t.put(at, path.Base(name), n)
	return nil
}

// nodeSize is how many bytes a node takes without its text, roughly.
const nodeSize = 160

// short contents are kept once.
const short = 64

func sizeOf(data []byte) int64 {
	if len(data) <= short {
		return 0
	}
	return int64(len(data))
}

func (t *Tree) put(at *node, name string, n node) *node {
	n.name, n.parent = t.own(name), at
	at.below[n.name] = &n
	t.nodes++
	t.bytes += nodeSize + int64(len(name)) + int64(len(n.link)) + sizeOf(n.data)
	return &n
}

// own is a name that is no part of a longer text. Most files of a machine have one of a few hundred names.
func (t *Tree) own(name string) string {
	const most = 4000
	if known, ok := t.names[name]; ok {
		return known
	}
	name = strings.Clone(name)
	if len(t.names) < most {
		t.names[name] = name
	}
	return name
}

// dir finds or makes a directory. It follows no link, so that a name alone says where a file is.
func (t *Tree) dir(name string) (*node, error) {
	at := &t.root
	for part := range partsOf(name) {
		next := at.below[part]
		switch {
		case next == nil:
			next = t.put(at, part, node{below: map[string]*node{}})
		case next.below == nil:
			return nil, ErrTaken
		}
		at = next
	}
	return at, nil
}

// linkLimit is the greatest number of links on the way to a file, as in the kernel.
const linkLimit = 40

// find walks to a file as the kernel does in a directory that is its root. The last link is followed if follow
// is true.
func (t *Tree) find(name string, follow bool) (*node, error) {
	at, links := &t.root, 0
	left := strings.Split(strings.TrimPrefix(name, "/"), "/")
	for len(left) > 0 {
		part := left[0]
		left = left[1:]
		if at.below == nil {
			return nil, unix.ENOTDIR
		}
		switch part {
		case "", ".":
			continue
		case "..":
			at = at.parent
			continue
		}
		next := at.below[part]
		switch {
		case next == nil:
			return nil, unix.ENOENT
		case next.link == "" || len(left) == 0 && !follow:
			at = next
			continue
		}
		if links++; links > linkLimit {
			return nil, unix.ELOOP
		}
		if strings.HasPrefix(next.link, "/") {
			at = &t.root
		}
		left = append(strings.Split(next.link, "/"), left...)
	}
	return at, nil
}

// path is the node's name in the tree.
func (n *node) path() string {
	var parts []string
	for ; n.parent != n; n = n.parent {
		parts = append(parts, n.name)
	}
	var b strings.Builder
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(parts[i])
	}
	return b.String()
}

// info is a node as fs.FileInfo and fs.DirEntry, under the name that was asked for.
type info struct {
	*node
	as string
}

func (i info) Name() string { return i.as }
func (i info) Size() int64  { return int64(len(i.data)) }
func (i info) Mode() fs.FileMode {
	switch {
	case i.below != nil:
		return fs.ModeDir | 0o555
	case i.link != "":
		return fs.ModeSymlink | 0o777
	}
	return 0o444
}
func (i info) Type() fs.FileMode          { return i.Mode().Type() }
func (i info) IsDir() bool                { return i.below != nil }
func (i info) ModTime() time.Time         { return time.Time{} }
func (i info) Sys() any                   { return nil }
func (i info) Info() (fs.FileInfo, error) { return i, nil }
