// SPDX-License-Identifier: Apache-2.0

package drm_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// The examples, on the testbed's nodes: elsewhere there may be none.
func TestVMExamples(t *testing.T) {
	testenv.VM(t)
	if got := printed(t, ExampleDevice_PrimeHandleToFD); got != "1048576\n" {
		t.Errorf("PrimeHandleToFD prints %q", got)
	}
	if got := printed(t, ExampleNodes); !strings.Contains(got, "/dev/dri/card0 vgem not on PCI\n") {
		t.Errorf("Nodes prints %q", got)
	}
}

// printed is what f writes to standard output.
func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	f() // little enough for the pipe
	os.Stdout = stdout
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
