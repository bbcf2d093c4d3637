// SPDX-License-Identifier: Apache-2.0

package runtimelib

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
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

// missing is the error when no candidate is there.
func (s Spec) missing() error {
	name := s.candidates()[0]
	if os.Getenv(s.Env) != "" {
		return &failure.Error{Op: "dlopen", Device: name, Remedy: s.correct(), Err: fs.ErrNotExist}
	}
	return &notInstalled{failure.Error{Op: "dlopen", Device: name, Remedy: s.Install, Err: gpualloc.ErrNotInstalled}}
}

// broken is the error when a candidate is there and does not load. reason is the
// dynamic linker's.
func (s Spec) broken(name, reason, remedy string) error {
	if os.Getenv(s.Env) != "" {
		remedy = s.correct()
	}
	return &failure.Error{Op: "dlopen", Device: name, Detail: reason, Remedy: remedy, Err: ErrBroken}
}

// correct is the remedy for what the variable names.
func (s Spec) correct() string {
	return s.Env + " names it: correct or unset that variable"
}

// notInstalled says in fewer words that a library is missing.
type notInstalled struct{ is failure.Error }

func (e *notInstalled) Error() string {
	text := fmt.Sprintf("%s %v", e.is.Device, e.is.Err)
	if e.is.Remedy != "" {
		text += "; " + e.is.Remedy
	}
	return text
}

func (e *notInstalled) Unwrap() error { return &e.is }

// TooOld is the error about a function that the library lacks.
func (l *Library) TooOld(function, remedy string) error {
	return &failure.Error{Op: "dlsym", Device: l.Path(), Detail: "it has no function " + function, Remedy: remedy, Err: ErrTooOld}
}
