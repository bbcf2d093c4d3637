// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"testing"

	"github.com/gpurdma/gpurdma/testbed/arch"
)

// Builds for guests of another processor have a directory of their own. The emulator and
// the guest's root are in this machine's.
func TestFor(t *testing.T) {
	tree := Tree{Root: "/p", Build: "/p/build", Host: "/p/build", Arch: arch.Default}
	if got := tree.For(arch.Default); got != tree {
		t.Errorf("this machine's: %+v", got)
	}
	for flavour, want := range map[string]map[string]string{
		"amd64": {
			"kernel": "/p/build/kernels/7.2", "emulator": "/p/build/qemu/qemu-system-x86_64", "init": "", "root": "", "list": "/p/testbed/required/7.2.txt",
		},
		"arm64-16k": {
			"kernel": "/p/build/arm64-16k/kernels/7.2", "emulator": "/p/build/qemu-arm64/qemu-system-aarch64", "init": "/p/build/arm64-16k/bin/testbed",
			"root": "/p/build/userland-arm64", "list": "/p/testbed/required/arm64/7.2.txt",
		},
		"arm64": {
			"kernel": "/p/build/arm64/kernels/7.2", "emulator": "/p/build/qemu-arm64/qemu-system-aarch64", "init": "/p/build/arm64/bin/testbed",
			"root": "/p/build/userland-arm64", "list": "/p/testbed/required/arm64/7.2.txt",
		},
	} {
		a, err := arch.Lookup(flavour)
		if err != nil {
			t.Fatal(err)
		}
		o := tree.For(a)
		for what, got := range map[string]string{
			"kernel": o.Kernel("7.2"), "emulator": o.QEMU(), "init": o.Init(), "root": o.Userland(), "list": o.Required("7.2"),
		} {
			if got != want[what] {
				t.Errorf("%s: %s is %q, want %q", flavour, what, got, want[what])
			}
		}
	}
}
