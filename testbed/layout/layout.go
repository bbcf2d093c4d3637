// SPDX-License-Identifier: Apache-2.0

// Package layout says where the test bed's files lie below the project's
// build directory. The Makefile's kernel targets use the same paths.
package layout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Tree is a checkout of the project.
type Tree struct {
	Root  string // the directory of the project's go.mod, absolute
	Build string // everything downloaded or built
}

// rootModule is the first line of the go.mod that marks the project's root.
const rootModule = "module github.com/gpurdma/gpurdma"

// Find returns the tree that dir lies in. The environment variable
// GPURDMA_BUILD moves the build directory.
func Find(dir string) (Tree, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Tree{}, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return Tree{}, err
	}
	for d := dir; ; d = filepath.Dir(d) {
		b, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if err == nil {
			first, _, _ := strings.Cut(string(b), "\n")
			if strings.TrimSpace(first) == rootModule {
				t := Tree{Root: d, Build: filepath.Join(d, "build")}
				if b := os.Getenv("GPURDMA_BUILD"); b != "" {
					if t.Build, err = filepath.Abs(b); err != nil {
						return Tree{}, err
					}
				}
				return t, nil
			}
		} else if !errors.Is(err, os.ErrNotExist) {
			return Tree{}, err
		}
		if d == filepath.Dir(d) {
			return Tree{}, fmt.Errorf("%s is not inside a checkout of the project (no go.mod with %q above it)", dir, rootModule)
		}
	}
}

// Downloads holds the packages as fetched.
func (t Tree) Downloads() string { return filepath.Join(t.Build, "dl") }

// Kernel holds one kernel series: image/, headers/, source.tar.xz, release
// and version.
func (t Tree) Kernel(series string) string { return filepath.Join(t.Build, "kernels", series) }

// Modules holds the modules built from kernel/ for a series.
func (t Tree) Modules(series string) string { return filepath.Join(t.Build, "modules", series) }

// Rereg is where the RDMA core of a series is that re-registers dma-bufs.
func (t Tree) Rereg(series string) string { return filepath.Join(t.Modules(series), "rereg") }

// Required lists the tests that must run on a series.
func (t Tree) Required(series string) string {
	return filepath.Join(t.Root, "testbed", "required", series+".txt")
}

// Bin holds the project's binaries; it is on the guest's PATH.
func (t Tree) Bin() string { return filepath.Join(t.Build, "bin") }

// Cache holds the test bed's own derived files, such as initramfs images.
func (t Tree) Cache() string { return filepath.Join(t.Build, "testbed") }

// Runs holds the logs of runs that failed.
func (t Tree) Runs() string { return filepath.Join(t.Build, "vm") }

// QEMU starts the emulator that testbed/emulator.sh fetches, where it could.
func (t Tree) QEMU() string { return filepath.Join(t.Build, "qemu", "qemu-system-x86_64") }
