// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/abicheck"
)

// compileAndCompare checks the ABI against C headers; it reports false where
// there is no compiler or no such header.
func compileAndCompare(t *testing.T, headers []string, structs []abicheck.Struct, numbers []abicheck.Number) bool {
	t.Helper()
	source, err := abicheck.Program(headers, structs, numbers)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	probe := "#include <" + strings.Join(headers, ">\n#include <") + ">\nint main(void) { return 0; }\n"
	if out, err := compile(t, dir, "probe", probe); err != nil {
		t.Logf("%v: %s", err, out)
		return false
	}
	if out, err := compile(t, dir, "layout", source); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, source)
	}
	out, err := exec.Command(filepath.Join(dir, "layout")).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := abicheck.Compare(string(out), structs, numbers); err != nil {
		t.Error(err)
	}
	return true
}

// compile honours CC and CFLAGS.
func compile(t *testing.T, dir, name, source string) (string, error) {
	t.Helper()
	file := filepath.Join(dir, name+".c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	args := append(strings.Fields(os.Getenv("CFLAGS")), "-o", filepath.Join(dir, name), file)
	out, err := exec.Command(cc, args...).CombinedOutput()
	return string(out), err
}
