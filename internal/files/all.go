// SPDX-License-Identifier: Apache-2.0

package files

import (
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
)

// File is a file, a directory or a link of a [Tree].
type File struct {
	Data []byte
	Link string // of a link; its own name if it stands for a file that could not be read
	Dir  bool
}

// Unreadable reports the mark of a file that is there and could not be read.
func (f File) Unreadable(name string) bool { return f.Link != "" && f.Link == path.Base(name) }

// All are the files of a tree, in order: a directory comes before what is in it.
func (t *Tree) All() iter.Seq2[string, File] {
	return func(yield func(string, File) bool) { t.root.all("", yield) }
}

func (n *node) all(at string, yield func(string, File) bool) bool {
	for _, name := range slices.Sorted(maps.Keys(n.below)) {
		x := n.below[name]
		whole := path.Join(at, name)
		if !yield(whole, File{x.data, x.link, x.below != nil}) || !x.all(whole, yield) {
			return false
		}
	}
	return true
}

// Find is the file of that name. It follows no link, not even on the way.
func (t *Tree) Find(name string) (File, bool) {
	at := &t.root
	for part := range partsOf(name) {
		if at = at.below[part]; at == nil {
			return File{}, false
		}
	}
	return File{at.data, at.link, at.below != nil}, true
}

// Replace puts a file in the place of another, or adds it.
func (t *Tree) Replace(name string, f File) error {
	t.Remove(name)
	switch {
	case f.Dir:
		return t.AddDir(name)
	case f.Link != "":
		return t.AddLink(name, f.Link)
	}
	return t.AddFile(name, f.Data)
}

// Remove takes a file away, and what is below it. It follows no link.
func (t *Tree) Remove(name string) {
	at := &t.root
	for part := range partsOf(path.Dir("/" + name)) {
		if at = at.below[part]; at == nil {
			return
		}
	}
	if old := at.below[path.Base(name)]; old != nil {
		delete(at.below, old.name)
		t.forget(old)
	}
}

// forget takes a node and what is below it off the counts.
func (t *Tree) forget(n *node) {
	t.nodes--
	t.bytes -= nodeSize + int64(len(n.name)) + int64(len(n.link)) + sizeOf(n.data)
	for _, x := range n.below {
		t.forget(x)
	}
}

// partsOf are the parts of a name.
func partsOf(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(path.Clean("/"+name), "/") {
			if part != "" && !yield(part) {
				return
			}
		}
	}
}
