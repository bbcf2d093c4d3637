// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package dl

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// libc is the one library that every machine with cgo has.
const libc = "libc.so.6"

func TestOpenMissing(t *testing.T) {
	const name = "libno-such-library.so.7"
	_, err := Open(name)
	if !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), name) != 1 {
		t.Errorf("Open(%q) = %v, want ErrNotExist that names it once", name, err)
	}
}

func TestSymVersions(t *testing.T) {
	lib, err := Open(libc)
	if err != nil {
		t.Skipf("no glibc here: %v", err)
	}
	// realpath exists in two versions with different behaviour on x86-64.
	version := "GLIBC_2.3"
	p, err := lib.Sym("realpath", version)
	if err != nil {
		version = "GLIBC_2.17" // the first of arm64
		if p, err = lib.Sym("realpath", version); err != nil {
			t.Fatal(err)
		}
	}
	if p == nil {
		t.Error("nil address without an error")
	}
	if got := filepath.Base(PathOf(p)); !strings.HasPrefix(got, "libc") {
		t.Errorf("PathOf(realpath) = %q, want the C library", got)
	}
	if p, err := lib.Sym("realpath", ""); err != nil || p == nil {
		t.Errorf("the default version: %p, %v", p, err)
	}
	for _, c := range [][2]string{{"no_such_function", ""}, {"realpath", "GLIBC_9.99"}, {"no_such_function", version}} {
		if p, err := lib.Sym(c[0], c[1]); !errors.Is(err, ErrNoSymbol) || !strings.Contains(err.Error(), c[0]) {
			t.Errorf("Sym(%q, %q) = %p, %v; want ErrNoSymbol with the name", c[0], c[1], p, err)
		}
	}
}
