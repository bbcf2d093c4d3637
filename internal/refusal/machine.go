// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/internal/pci"
	"github.com/gpurdma/gpurdma/internal/procfs"
	"github.com/gpurdma/gpurdma/internal/sysfs"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Machine are the files that evidence is read from, when a refusal asks for it.
type Machine struct {
	Sys  sysfs.FS
	Proc procfs.FS
}

// release is the kernel's, "6.12.43+deb13-amd64".
func (m Machine) release() (string, error) {
	name := m.Proc.Path("sys/kernel/osrelease")
	text, err := files.ReadFile(name)
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if m.Proc != (procfs.FS{}) {
		return "", err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

// series are the first two numbers of a version.
func series(version string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	minor, err = strconv.Atoi(rest[:end])
	return major, minor, err == nil
}

// drm is the exporter of a buffer that drm_gem_prime_export has named, as it
// names those of all DRM drivers but i915: known if the machine has one.
func (m Machine) drm() exporter {
	names, err := m.Sys.List("class/drm")
	if err != nil {
		return exporter{}
	}
	var drivers []string
	unread := false
	for _, name := range names {
		number, isNode := strings.CutPrefix(name, "renderD")
		if !isNode {
			number, isNode = strings.CutPrefix(name, "card")
		}
		if _, err := strconv.Atoi(number); !isNode || err != nil {
			continue // "version", and connectors such as "card0-DP-1"
		}
		driver, err := m.Sys.Link(path.Join("class/drm", name, "device/driver"))
		switch {
		case err != nil:
			unread = true
		case driver == "nvidia": // the PCI driver; its DRM devices are nvidia-drm's
			driver = "nvidia-drm"
		}
		if driver != "" && !slices.Contains(drivers, driver) {
			drivers = append(drivers, driver)
		}
	}
	if len(drivers) == 1 && !unread {
		return exporter{driver: drivers[0], among: drivers, how: "the machine's only DRM driver"}
	}
	return exporter{among: drivers}
}

// foreign says whether a module comes from elsewhere than the kernel's own source:
// its taint then has an O. The words are the evidence.
func (m Machine) foreign(module string) (is answer, words string) {
	file := path.Join("module", module, "taint")
	taint, err := m.Sys.ReadString(file)
	switch {
	case err == nil && strings.Contains(taint, "O"):
		return yes, "taint " + taint + " in " + m.Sys.Path(file)
	case err == nil:
		return no, "its taint has no O"
	case errors.Is(err, fs.ErrNotExist) && m.Sys.Exists("module"):
		// A module that is built in has no taint, and a directory only for its
		// parameters (kernel/params.c).
		return no, "built in: " + m.Sys.Path(file) + " is not there"
	}
	return unknown, m.Sys.Path(file) + " cannot be read"
}

type answer int

const (
	unknown answer = iota
	yes
	no
)

// displays are the GPUs that a driver has bound.
func (m Machine) displays(driver string) ([]pci.Function, error) {
	dir := "bus/pci/drivers/" + driver
	names, err := m.Sys.List(dir)
	if err != nil {
		return nil, err
	}
	var found []pci.Function
	for _, name := range names {
		a, err := pciaddr.Parse(name)
		if err != nil {
			continue // "bind", "new_id"
		}
		f, err := pci.ReadFunction(m.Sys, a)
		if err != nil {
			return nil, err
		}
		if f.IsDisplay() {
			found = append(found, f)
		}
	}
	return found, nil
}
