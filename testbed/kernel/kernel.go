// SPDX-License-Identifier: Apache-2.0

// Package kernel keeps unpacked Debian kernels, each with headers and source
// of the same version, below the project's build directory.
package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurdma/gpurdma/testbed/layout"
)

// Series are the kernel series the test bed boots, the default first.
var Series = []string{"6.12", "6.1", "7.2"}

// newer are those that Debian 12 neither has nor can compile:
// kernel/buildroot.sh gets them, and a root file system with their compiler,
// from Debian's later suites.
var newer = map[string]bool{"7.2": true}

// layoutVersion changes when the files that Fetch leaves change meaning; a
// cache of another version is fetched again.
const layoutVersion = "1"

// ErrNotFetched says that a series is not in the cache.
var ErrNotFetched = errors.New("kernel not fetched")

// ErrUnavailable says that this machine has no way to get a series: its archive
// does not offer one, or it takes rights that the user has not.
var ErrUnavailable = errors.New("kernel not available here")

// Kernel is one unpacked kernel.
type Kernel struct {
	Series  string // such as 6.12
	Release string // what uname -r prints
	Version string // the Debian package version
	Dir     string // image/, headers/, source.tar.xz
}

// Image is the file that a boot loader is given.
func (k Kernel) Image() string { return filepath.Join(k.Dir, "image", "boot", "vmlinuz-"+k.Release) }

// ModuleDir is the kernel's /lib/modules/RELEASE.
func (k Kernel) ModuleDir() string {
	return filepath.Join(k.Dir, "image", "lib", "modules", k.Release)
}

// Config is the kernel's build configuration.
func (k Kernel) Config() string { return filepath.Join(k.Dir, "image", "boot", "config-"+k.Release) }

// Open returns the cached kernel of a series, or ErrNotFetched.
func Open(t layout.Tree, series string) (Kernel, error) {
	if !known(series) {
		return Kernel{}, unknown(series)
	}
	k := Kernel{Series: series, Dir: t.Kernel(series)}
	inputs, err := os.ReadFile(filepath.Join(k.Dir, "inputs"))
	if errors.Is(err, os.ErrNotExist) {
		return k, fmt.Errorf("%w: series %s", ErrNotFetched, series)
	}
	if err != nil {
		return k, err
	}
	if first, _, _ := strings.Cut(string(inputs), "\n"); first != layoutLine() {
		return k, fmt.Errorf("%w: series %s is cached in an older layout", ErrNotFetched, series)
	}
	for name, dst := range map[string]*string{"release": &k.Release, "version": &k.Version} {
		b, err := os.ReadFile(filepath.Join(k.Dir, name))
		if err != nil {
			return k, err
		}
		*dst = strings.TrimSpace(string(b))
	}
	return k, nil
}

func layoutLine() string { return "layout " + layoutVersion }

func known(series string) bool {
	for _, s := range Series {
		if s == series {
			return true
		}
	}
	return false
}

func unknown(series string) error {
	return fmt.Errorf("unknown kernel series %q: there are %s", series, strings.Join(Series, ", "))
}
