// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package levelzero

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// use makes the tests' library one below build/, with a double's knobs.
func use(t *testing.T, path string, knobs ...string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../build", path))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if testenv.InVM() {
			t.Fatalf("the testbed comes with the doubles: %v", err)
		}
		t.Skipf("build it with make doubles: %v", err)
	}
	t.Setenv("GPURDMA_LIBZE", path)
	for _, k := range knobs {
		name, value, _ := strings.Cut(k, "=")
		t.Setenv(name, value)
	}
}

func double(t *testing.T, variant string, knobs ...string) {
	t.Helper()
	use(t, "doubles/"+variant+"/libze_loader.so.1", knobs...)
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
		"zeMemAllocDevice":             "zeMemFree",
		"zeCommandListCreateImmediate": "zeCommandListDestroy",
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

// first is the first GPU.
func first(t *testing.T, s *session) Device {
	t.Helper()
	devices, err := s.devices()
	if err != nil {
		t.Fatal(err)
	}
	return devices[0]
}

// contextOf is the session's context of a device's driver.
func contextOf(t *testing.T, s *session, d Device) contextHandle {
	t.Helper()
	ctx, err := s.context(d.driver, d.String())
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// allocated is memory for export that the test owns, as an application's.
func allocated(t *testing.T, s *session, ctx contextHandle, d Device, size uint64) pointer {
	t.Helper()
	p, r := s.drv.alloc(ctx, d.handle, size, 64<<10, true)
	if r != Success {
		t.Fatal(r)
	}
	t.Cleanup(func() { s.drv.free(ctx, p) })
	return p
}

// words fails the test unless err says all of them.
func words(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}
