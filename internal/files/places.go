// SPDX-License-Identifier: Apache-2.0

package files

import (
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// places are the machines in memory and the copies of machines that are readable.
type places struct {
	trees  map[string]*mounted // by the directory below which each is
	copies []*confined
}

var (
	changing sync.Mutex
	here     atomic.Pointer[places] // nil if there is none: all files are this machine's
)

// change replaces the places by others. Those who read the old ones do not wait.
func change(edit func(*places)) {
	changing.Lock()
	defer changing.Unlock()
	next := places{trees: map[string]*mounted{}}
	if now := here.Load(); now != nil {
		next = places{maps.Clone(now.trees), slices.Clone(now.copies)}
	}
	edit(&next)
	if len(next.trees)+len(next.copies) == 0 {
		here.Store(nil)
		return
	}
	here.Store(&next)
}

// tree is the tree that has a file, and the file's name there; nil if none has it.
func (p *places) tree(name string) (t *mounted, in string) {
	if dir, in, ok := split(name); ok {
		return p.trees[dir], in
	}
	return nil, ""
}

// file is the file of a copy; its copy is nil if no copy has it. If one copy is below another, the lower one has
// the file.
func (p *places) file(name string) file {
	var f file
	for _, c := range p.copies {
		if in, ok := c.inside(name); ok && (f.copy == nil || len(c.dir) > len(f.copy.dir)) {
			f = file{c, in, name}
		}
	}
	return f
}

// in calls ofTree with a node of a tree, or ofCopy with a file of a copy. ok is false for a file of this machine.
func in[T any](op, name string, follow bool, ofTree func(*node) (T, error),
	ofCopy func(file) (T, error)) (out T, ok bool, err error) {
	all := here.Load()
	if all == nil {
		return out, false, nil
	}
	if t, at := all.tree(name); t != nil {
		var n *node
		if err = t.take(); err == nil {
			n, err = t.find(at, follow)
		}
		switch {
		case err != nil:
		case op == "open" && int64(len(n.data)) > limit(at):
			err = tooLarge(limit(at))
		default:
			out, err = ofTree(n)
		}
	} else if f := all.file(name); f.copy != nil {
		if err = f.copy.take(); err == nil {
			out, err = ofCopy(f)
		}
	} else {
		return out, false, nil
	}
	return out, true, wrapped(op, name, err)
}

// wrapped is an error with the operation and the file's name, as package os has it.
func wrapped(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*fs.PathError); ok {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// InTree reports a file of a tree.
func InTree(name string) bool {
	all := here.Load()
	if all == nil {
		return false
	}
	t, _ := all.tree(name)
	return t != nil
}

// Confined reports a file of a directory that [Confine] has. Such a file is not to be opened by other means than this
// package's.
func Confined(name string) bool {
	all := here.Load()
	return all != nil && all.file(name).copy != nil
}
