// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildWithoutCgo builds the command whose test calls, and returns the program's
// path. In a VM, which has no compiler, the test is skipped.
func BuildWithoutCgo(t testing.TB) string {
	t.Helper()
	if InVM() {
		t.Skip("compiles: runs on the host")
	}
	bin := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}
