// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/testbed/arch"
	"github.com/gpurdma/gpurdma/testbed/layout"
)

// Default is the series that is booted unless another is asked for.
const Default = "6.12"

// own are the series that Debian 12 has and compiles, for its own processor.
var own = []string{Default, "6.1"}

// DefaultOn is the series that is booted on a kind of guests unless another is asked for.
func DefaultOn(a arch.Arch) string {
	if a.Host() {
		return Default
	}
	return "7.2"
}

// patches has a folder for each series that the test bed boots. Those that are
// not Debian 12's own kernel/buildroot.sh gets from Debian's later suites, and a
// root file system with their compiler.
var patches = filepath.Join("kernel", "patches", "rxe-dmabuf")

// layoutVersion changes when the files that Fetch leaves change meaning; a
// cache of another version is fetched again.
const layoutVersion = "2"

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
	Arch    arch.Arch
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
	if err := known(t, series); err != nil {
		return Kernel{}, err
	}
	k := Kernel{Series: series, Dir: t.Kernel(series), Arch: t.Arch}
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

// known refuses what is no series of this checkout.
func known(t layout.Tree, series string) error {
	var all []string
	if t.Arch.Host() {
		all = slices.Clone(own)
	}
	folders, _ := os.ReadDir(filepath.Join(t.Root, patches))
	for _, f := range folders {
		if !slices.Contains(own, f.Name()) {
			all = append(all, f.Name())
		}
	}
	if slices.Contains(all, series) {
		return nil
	}
	return fmt.Errorf("unknown kernel series %q of %s: there are %s; a newer one is a folder in %s", series, t.Arch.Flavour, strings.Join(all, ", "), patches)
}

// Meant says whether what names these series is meant for one: where none is
// named, for all. One of Debian's later suites stands for those after it, too.
func Meant(names []string, series string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		return name == series || !slices.Contains(own, name) && Compare(series, name) > 0
	})
}

// Compare orders series (6.1, 6.12, 7.2) and versions (6.1.192-2) by their numbers.
func Compare(a, b string) int { return slices.Compare(numbers(a), numbers(b)) }

func numbers(version string) []int {
	var n []int
	for _, digits := range strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' }) {
		i, _ := strconv.Atoi(digits)
		n = append(n, i)
	}
	return n
}
