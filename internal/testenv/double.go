// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Double makes the library at path, below build/, the one that the variable env names, and sets a
// double's knobs ("DOUBLE_DEVICES=1"). The tests' package is two directories below the repository's
// root.
func Double(t testing.TB, env, path string, knobs ...string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../build", path))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if InVM() || os.Getenv(headersVar) != "" { // `make test` builds them, and the testbed comes with them
			t.Fatalf("the doubles are not there (make doubles): %v", err)
		}
		t.Skipf("build it with make doubles: %v", err)
	}
	t.Setenv(env, path)
	for _, k := range knobs {
		name, value, _ := strings.Cut(k, "=")
		t.Setenv(name, value)
	}
}
