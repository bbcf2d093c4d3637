// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package levelzero

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// use makes the tests' library one below build/, with a double's knobs.
func use(t *testing.T, path string, knobs ...string) {
	t.Helper()
	testenv.Double(t, "GPURDMA_LIBZE", path, knobs...)
}

func double(t *testing.T, variant string, knobs ...string) {
	t.Helper()
	use(t, "doubles/"+variant+"/libze_loader.so.1", knobs...)
}

// pairs are the functions that take something, and give it back.
var pairs = map[string]string{
	"zeMemAllocDevice":             "zeMemFree",
	"zeCommandListCreateImmediate": "zeCommandListDestroy",
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
