// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package runtimelib

import (
	"errors"
	"io/fs"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/dl"
)

// Library is a loaded library. It stays loaded: drivers keep threads and state
// in the process that unloading would break.
type Library struct {
	lib  *dl.Library
	name string
	path string // "" until a symbol was found: they tell where they are from
}

// Open loads the first candidate that is there.
func Open(s Spec) (*Library, error) {
	for _, name := range s.candidates() {
		lib, err := dl.Open(name)
		if err == nil {
			return &Library{lib: lib, name: name}, nil
		}
		var why *dl.Error
		if errors.As(err, &why) && !errors.Is(err, fs.ErrNotExist) {
			return nil, s.broken(name, why.Reason, why.Remedy())
		}
	}
	return nil, s.missing()
}

// Path is the file that was loaded, or, before a symbol was looked up, the
// name that it was loaded by.
func (l *Library) Path() string {
	if l.path == "" {
		return l.name
	}
	return l.path
}

// Symbol returns the address of a function in its default version, nil if the
// library has none of that name.
func (l *Library) Symbol(name string) unsafe.Pointer {
	f, err := l.lib.Sym(name, "")
	if err != nil {
		return nil
	}
	if l.path == "" {
		l.path = dl.PathOf(f)
	}
	return f
}
