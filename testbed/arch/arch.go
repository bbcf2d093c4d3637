// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Arch is a build of Debian's kernels, and the processor that it is for.
type Arch struct {
	Flavour  string // Debian's name for the build: amd64, arm64 or arm64-16k
	Name     string // Debian's and Go's name for the processor: amd64 or arm64
	PageSize int
	Emulator string // QEMU's program
	Compiler string // of C programs, where the guest's processor is not this machine's
	// Race says that Go's race detector runs there. On arm64 it needs addresses of 48 bits, and the kernel with
	// pages of 16 KiB has 47.
	Race bool
}

// all are those that the test bed boots. The first is the default.
var all = []Arch{
	{Flavour: "amd64", Name: "amd64", PageSize: 4 << 10, Emulator: "qemu-system-x86_64", Race: true},
	{Flavour: "arm64-16k", Name: "arm64", PageSize: 16 << 10, Emulator: "qemu-system-aarch64", Compiler: "aarch64-linux-gnu-gcc"},
	{Flavour: "arm64", Name: "arm64", PageSize: 4 << 10, Emulator: "qemu-system-aarch64", Compiler: "aarch64-linux-gnu-gcc", Race: true},
}

// Default is the processor of most test machines: this machine's.
var Default = all[0]

// Lookup returns the one of a flavour; the empty name is the default.
func Lookup(flavour string) (Arch, error) {
	if flavour == "" {
		return Default, nil
	}
	for _, a := range all {
		if a.Flavour == flavour {
			return a, nil
		}
	}
	return Arch{}, fmt.Errorf("unknown flavour of kernels %q: there are %s", flavour, strings.Join(Flavours(), ", "))
}

// Flavours are the names that Lookup knows.
func Flavours() []string {
	var names []string
	for _, a := range all {
		names = append(names, a.Flavour)
	}
	return names
}

// Host says whether this machine's own programs run in the guest.
func (a Arch) Host() bool { return a.Name == runtime.GOARCH }

// Environ is what the go command is given, besides its environment, to build programs
// for the guest. sysroot is the guest's root, with the headers and libraries of C.
func (a Arch) Environ(sysroot string) []string {
	if a.Host() {
		return nil
	}
	return append(os.Environ(), "GOARCH="+a.Name, "CGO_ENABLED=1", "CC="+a.Compiler+" --sysroot="+sysroot)
}

// Userland is the guest's root below a build directory, where the guest does not share
// this machine's; empty: it does.
func (a Arch) Userland(build string) string {
	if a.Host() {
		return ""
	}
	return filepath.Join(build, "userland-"+a.Name)
}
