// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The walk's own source, compiled for this machine, over lists that no exporter
// of the testbed makes: testdata/walk says which.
func TestWalkRandomLists(t *testing.T) {
	clang, err := exec.LookPath("clang-14")
	if err != nil {
		if os.Getenv("GPURDMA_NEED_CLANG") != "" {
			t.Fatal(err)
		}
		t.Skip("compiling the walk needs clang-14 (apt-get install clang-14)")
	}
	program := filepath.Join(t.TempDir(), "walk")
	cmd := exec.Command(clang, "-std=gnu11", "-O2", "-Wall", "-Werror", "-Wno-unused-function", "-o", program, "testdata/walk/walk.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
