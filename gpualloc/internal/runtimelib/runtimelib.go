// SPDX-License-Identifier: Apache-2.0

// Package runtimelib loads the libraries of GPU vendors and says clearly what
// is wrong when they cannot be used: not installed, there but broken, or older
// than what is asked of them.
package runtimelib

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// ErrTooOld: the library is there and lacks a function that is needed.
var ErrTooOld = errors.New("the library is too old")

// ErrBroken: the library is there and does not load.
var ErrBroken = errors.New("the library does not load")

// Spec says how to find a library.
type Spec struct {
	Names   []string // sonames, the best first: "libcuda.so.1"
	Env     string   // variable that names another file or soname
	Dirs    []string // where else it is installed: "/opt/rocm/lib"
	Install string   // what to do if it is missing
}

// candidates are what to try, in order. The variable overrides everything.
func (s Spec) candidates() []string {
	if name := os.Getenv(s.Env); name != "" {
		return []string{name}
	}
	out := append([]string(nil), s.Names...)
	for _, dir := range s.Dirs {
		for _, name := range s.Names {
			out = append(out, filepath.Join(dir, name))
		}
	}
	return out
}

// Key tells libraries apart: the same key loads the same library.
func (s Spec) Key() string { return strings.Join(s.candidates(), ":") }

// failed makes the error when no candidate is there, or found one does not
// load. reason is the dynamic linker's.
func (s Spec) failed(reason string, found bool) error {
	e := &dmabuf.Error{Op: "dlopen", Device: s.candidates()[0], Detail: reason, Remedy: s.Install, Err: fs.ErrNotExist}
	if found {
		e.Err = ErrBroken
		e.Remedy = "check with ldd what it misses, and that it is of this machine's architecture"
	}
	if os.Getenv(s.Env) != "" {
		e.Remedy = fmt.Sprintf("%s names it: correct or unset that variable", s.Env)
	}
	return e
}

// notThere tells a file that does not exist from one that does not load, by
// the dynamic linker's words for the candidate itself: a library that misses
// another one is there.
func notThere(candidate, reason string) bool {
	return strings.HasPrefix(reason, candidate+":") && strings.Contains(reason, "No such file or directory")
}

// TooOld is the error about a function that the library lacks.
func (l *Library) TooOld(function, remedy string) error {
	return &dmabuf.Error{Op: "dlsym", Device: l.Path(), Detail: "it has no function " + function, Remedy: remedy, Err: ErrTooOld}
}
