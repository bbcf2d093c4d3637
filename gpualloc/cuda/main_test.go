// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cuda

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// double makes the tests' library one of testbed/doubles, with its knobs.
func double(t *testing.T, variant string, knobs ...string) {
	t.Helper()
	testenv.Double(t, "GPURDMA_LIBCUDA", "doubles/"+variant+"/libcuda.so.1", knobs...)
}

// pairs are the functions that take something, and give it back.
var pairs = map[string]string{
	"cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRelease_v2",
	"cuCtxPushCurrent_v2":      "cuCtxPopCurrent_v2",
	"cuMemAlloc_v2":            "cuMemFree_v2",
	"cuMemCreate":              "cuMemRelease",
	"cuMemAddressReserve":      "cuMemAddressFree",
	"cuMemMap":                 "cuMemUnmap",
}

func started(t *testing.T) *session {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return s
}
