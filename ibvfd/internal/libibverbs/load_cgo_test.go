// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package libibverbs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/dl"
)

// "Install it" is for a library that is not there: one that does not load has the
// dynamic linker's words.
func TestNotLoaded(t *testing.T) {
	_, err := dl.Open("libno-such-library.so.7")
	if err = notLoaded(err); !errors.Is(err, ErrNoLibrary) || errors.Is(err, ErrBrokenLibrary) || !strings.Contains(err.Error(), "install it") {
		t.Errorf("not there: %v", err)
	}
	file := filepath.Join(t.TempDir(), soname)
	if err := os.WriteFile(file, []byte("\x7fELF and no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = dl.Open(file)
	if err = notLoaded(err); !errors.Is(err, ErrBrokenLibrary) || errors.Is(err, ErrNoLibrary) || strings.Contains(err.Error(), "install") {
		t.Errorf("broken: %v", err)
	}
	if want := "load on " + soname + ": file too short: libibverbs cannot be loaded; check with ldd"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("broken: %v, want %s", err, want)
	}
}
