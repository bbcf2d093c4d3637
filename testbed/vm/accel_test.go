// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurdma/gpurdma/testbed/arch"
	"github.com/gpurdma/gpurdma/testbed/layout"
)

func TestQEMU(t *testing.T) {
	tree := layout.Tree{Host: t.TempDir(), Arch: arch.Default}
	t.Setenv("GPURDMA_QEMU", "")
	if got := QEMU(tree); got != "qemu-system-x86_64" {
		t.Errorf("nothing fetched: %s, want the installed one", got)
	}
	if err := os.Mkdir(filepath.Dir(tree.QEMU()), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tree.QEMU(), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := QEMU(tree); got != tree.QEMU() {
		t.Errorf("%s, want the one that was fetched", got)
	}
	t.Setenv("GPURDMA_QEMU", "/opt/qemu")
	if got := QEMU(tree); got != "/opt/qemu" {
		t.Errorf("%s, want what the environment names", got)
	}
}
