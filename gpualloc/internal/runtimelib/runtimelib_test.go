// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package runtimelib

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
)

const env = "GPURDMA_TEST_LIBRARY"

func TestOpen(t *testing.T) {
	l, err := Open(Spec{Names: []string{"libnosuch.so.9", "libc.so.6"}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if l.Path() != "libc.so.6" {
		t.Errorf("loaded as %q", l.Path())
	}
	if l.Symbol("getpid") == nil {
		t.Error("no getpid")
	}
	if !filepath.IsAbs(l.Path()) || !strings.HasPrefix(filepath.Base(l.Path()), "libc") {
		t.Errorf("loaded from %q", l.Path())
	}
	if l.Symbol("no_such_function") != nil {
		t.Error("a function that is not there has an address")
	}
	if err := l.TooOld("no_such_function", "get a newer one"); !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), "no_such_function") {
		t.Errorf("got %v", err)
	}
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "libbroken.so.1")
	if err := os.WriteFile(broken, []byte("\x7fELF and no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		spec Spec
		env  string
		is   error
		word string
	}{
		{"nothing there", Spec{Names: []string{"libnosuch.so.9"}, Install: "install nosuch"}, "", fs.ErrNotExist, "install nosuch"},
		{"nothing in the directories", Spec{Names: []string{"libnosuch.so.9"}, Dirs: []string{dir}}, "", fs.ErrNotExist, "libnosuch.so.9"},
		{"broken, in a directory", Spec{Names: []string{"libbroken.so.1"}, Dirs: []string{dir}}, "", ErrBroken, "ldd"},
		{"broken hides what comes after", Spec{Names: []string{broken, "libc.so.6"}}, "", ErrBroken, broken},
		{"the variable names nothing", Spec{Names: []string{"libc.so.6"}}, filepath.Join(dir, "none"), fs.ErrNotExist, env},
		{"the variable names something broken", Spec{Names: []string{"libc.so.6"}}, broken, ErrBroken, env},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.spec.Env = env
			t.Setenv(env, tt.env)
			_, err := Open(tt.spec)
			if !errors.Is(err, tt.is) {
				t.Fatalf("got %v, want %v", err, tt.is)
			}
			if !strings.Contains(err.Error(), tt.word) {
				t.Errorf("the error does not say %q: %v", tt.word, err)
			}
		})
	}
}

// The error of a missing library says so once; every other refusal has the linker's words.
func TestMessages(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "libbroken.so.1")
	if err := os.WriteFile(broken, []byte("\x7fELF and no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Spec{Names: []string{"libnosuch.so.9", "libnosuch.so"}, Env: env, Install: "install nosuch"}
	_, err := Open(s)
	if err.Error() != "libnosuch.so.9 is not installed; install nosuch" || !errors.Is(err, gpualloc.ErrNotInstalled) {
		t.Errorf("not installed: %v", err)
	}
	var f gpualloc.Found
	f.Refuse(err)
	if f.Why != "libnosuch.so.9 is not installed" || f.Remedy != "install nosuch" {
		t.Errorf("not installed: %q, %q", f.Why, f.Remedy)
	}
	s.Names, s.Dirs = []string{"libbroken.so.1"}, []string{dir}
	_, err = Open(s)
	if want := "dlopen on " + broken + ": file too short: the library does not load; check with ldd"; !strings.HasPrefix(err.Error(), want) || errors.Is(err, gpualloc.ErrNotInstalled) {
		t.Errorf("broken: %v, want %s", err, want)
	}
	none := filepath.Join(dir, "none")
	t.Setenv(env, none)
	_, err = Open(s)
	if want := "dlopen on " + none + ": file does not exist; " + env + " names it"; !strings.HasPrefix(err.Error(), want) || errors.Is(err, gpualloc.ErrNotInstalled) {
		t.Errorf("the variable names nothing: %v, want %s", err, want)
	}
}

func TestKeyFollowsTheVariable(t *testing.T) {
	s := Spec{Names: []string{"libc.so.6"}, Env: env}
	before := s.Key()
	t.Setenv(env, "/elsewhere/libc.so.6")
	if s.Key() == before {
		t.Error("two libraries have the same key")
	}
}
