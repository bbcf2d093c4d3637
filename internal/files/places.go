// SPDX-License-Identifier: Apache-2.0

package files

import (
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// places are the directories for which other systems answer than this machine.
type places struct {
	trees  map[string]*mounted // by the directory below which each is
	served []*directory
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
		next = places{maps.Clone(now.trees), slices.Clone(now.served)}
	}
	edit(&next)
	if len(next.trees)+len(next.served) == 0 {
		here.Store(nil)
		return
	}
	here.Store(&next)
}

// without are the directories without one of them.
func without(all []*directory, one *directory) []*directory {
	return slices.DeleteFunc(all, func(d *directory) bool { return d == one })
}

// systemOf is the system that answers for a file. If one directory is below another, that of the lower one does.
func systemOf(name string) System {
	all := here.Load()
	if all == nil {
		return Machine
	}
	if dir, _, ok := split(name); ok {
		if t := all.trees[dir]; t != nil {
			return t
		}
		return Machine
	}
	var found *directory
	for _, d := range all.served {
		if _, ok := d.inside(name); ok && (found == nil || len(d.dir) > len(found.dir)) {
			found = d
		}
	}
	if found == nil {
		return Machine
	}
	return found.system
}

// directory is where a system answers for all files.
type directory struct {
	dir     string // as filepath.Clean writes it
	spelled string // as the caller wrote it, without slashes at the end
	system  System
}

func newDirectory(dir string, s System) *directory {
	return &directory{dir: filepath.Clean(dir), spelled: spelling(dir), system: s}
}

// spelling is a directory as it is written, without slashes at the end.
func spelling(dir string) string { return strings.TrimRight(dir, "/") }

// inside is a file's name in the directory, from it on. ok is false if the file is not at or below the directory.
func (d *directory) inside(name string) (in string, ok bool) {
	switch {
	case d.dir == "/":
		return name, strings.HasPrefix(name, "/")
	case d.dir == "." && name != "" && name != ".." && name[0] != '/' && !strings.HasPrefix(name, "../"):
		return "/" + name, true // filepath.Join removes the dot
	}
	for _, dir := range [...]string{d.spelled, d.dir} {
		switch in, ok = strings.CutPrefix(name, dir); {
		case ok && in == "":
			return "/", true
		case ok && in[0] == '/':
			return in, true
		}
	}
	return "", false
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
