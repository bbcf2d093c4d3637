// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurdma/gpurdma/testbed/arch"
)

// Tree is a checkout of the project.
type Tree struct {
	Root  string // the directory of the project's go.mod, absolute
	Build string // everything downloaded or built for guests
	// Host is what is downloaded or built for this machine: Build itself where guests
	// have this machine's processor.
	Host string
	Arch arch.Arch // of the guests
}

// For is the tree for guests of a kind. Those of another processor than this machine's
// have a build directory of their own below the build directory.
func (t Tree) For(a arch.Arch) Tree {
	t.Arch = a
	if !a.Host() {
		t.Host, t.Build = t.Build, filepath.Join(t.Build, a.Flavour)
	}
	return t
}

// rootModule is the first line of the go.mod that marks the project's root.
const rootModule = "module github.com/gpurdma/gpurdma"

// Find returns the tree that dir lies in. The environment variable
// GPURDMA_BUILD moves the build directory. Its guests have this machine's processor.
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
				t := Tree{Root: d, Build: filepath.Join(d, "build"), Arch: arch.Default}
				if b := os.Getenv("GPURDMA_BUILD"); b != "" {
					if t.Build, err = filepath.Abs(b); err != nil {
						return Tree{}, err
					}
				}
				t.Host = t.Build
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
	dir := filepath.Join(t.Root, "testbed", "required")
	if t.Arch.Name != arch.Default.Name {
		dir = filepath.Join(dir, t.Arch.Name) // one list for all page sizes
	}
	return filepath.Join(dir, series+".txt")
}

// Bin holds the project's binaries; it is on the guest's PATH.
func (t Tree) Bin() string { return filepath.Join(t.Build, "bin") }

// Cache holds the test bed's own derived files, such as initramfs images.
func (t Tree) Cache() string { return filepath.Join(t.Build, "testbed") }

// Runs holds the logs of runs that failed.
func (t Tree) Runs() string { return filepath.Join(t.Build, "vm") }

// Init is the program testbed for the guests, of which it is init; empty: this very one.
func (t Tree) Init() string {
	if t.Arch.Host() {
		return ""
	}
	return filepath.Join(t.Bin(), "testbed")
}

// Userland is the guests' root; empty: this machine's.
func (t Tree) Userland() string { return t.Arch.Userland(t.Host) }

// QEMU starts the emulator that testbed/emulator.sh fetches, where it could.
func (t Tree) QEMU() string {
	dir := "qemu"
	if t.Arch.Name != arch.Default.Name {
		dir += "-" + t.Arch.Name
	}
	return filepath.Join(t.Host, dir, t.Arch.Emulator)
}
