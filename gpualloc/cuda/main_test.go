// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cuda

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// double makes the tests' library one of testbed/doubles, with its knobs.
func double(t *testing.T, variant string, knobs ...string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../build/doubles", variant, "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if testenv.InVM() {
			t.Fatalf("the testbed comes with the doubles: %v", err)
		}
		t.Skipf("build it with make doubles: %v", err)
	}
	t.Setenv("GPURDMA_LIBCUDA", path)
	for _, k := range knobs {
		name, value, _ := strings.Cut(k, "=")
		t.Setenv(name, value)
	}
}

// calls reads the double's log.
type calls struct{ path string }

func logCalls(t *testing.T) calls {
	t.Helper()
	c := calls{filepath.Join(t.TempDir(), "calls")}
	t.Setenv("DOUBLE_LOG", c.path)
	return c
}

// count is how often a function was called and not made to fail.
func (c calls) count(t *testing.T, function string) int {
	t.Helper()
	text, err := os.ReadFile(c.path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, " ")
		if name == function && !strings.HasPrefix(rest, "(made to fail)") {
			n++
		}
	}
	return n
}

// balanced fails the test unless what was taken was given back.
func (c calls) balanced(t *testing.T) {
	t.Helper()
	for take, give := range map[string]string{
		"cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRelease_v2",
		"cuCtxPushCurrent_v2":      "cuCtxPopCurrent_v2",
		"cuMemAlloc_v2":            "cuMemFree_v2",
		"cuMemCreate":              "cuMemRelease",
		"cuMemAddressReserve":      "cuMemAddressFree",
		"cuMemMap":                 "cuMemUnmap",
	} {
		if a, b := c.count(t, take), c.count(t, give); a != b {
			t.Errorf("%d calls of %s, and %d of %s", a, take, b, give)
		}
	}
}

func started(t *testing.T) *session {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return s
}
