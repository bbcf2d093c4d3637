// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package rocm

import (
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// use makes the tests' library one below build/, with a double's knobs.
func use(t *testing.T, path string, knobs ...string) {
	t.Helper()
	testenv.Double(t, "GPURDMA_LIBHSA", path, knobs...)
}

func double(t *testing.T, variant string, knobs ...string) {
	t.Helper()
	use(t, "doubles/"+variant+"/libhsa-runtime64.so.1", knobs...)
}

// pairs are the functions that take something, and give it back.
var pairs = map[string]string{"hsa_amd_memory_pool_allocate": "hsa_amd_memory_pool_free"}

func started(t *testing.T) *session {
	t.Helper()
	s, err := start(gpualloc.Env{})
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

// allocated is memory that the test owns, as an application's would be.
func allocated(t *testing.T, s *session, d Device, size uint64) pointer {
	t.Helper()
	p, st := s.drv.alloc(d.pool, size)
	if st != Success {
		t.Fatal(st)
	}
	t.Cleanup(func() { s.drv.free(p) })
	return p
}
