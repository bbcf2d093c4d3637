// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cuda

import (
	"errors"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/internal/doubles"
	"github.com/gpurdma/gpurdma/gpualloc/internal/vendor"
)

// The driver is called where the GPU does not order writes by itself and there
// is a call, and nothing else is taken for an order.
func TestFlush(t *testing.T) {
	for _, c := range []struct {
		name, variant string
		knobs         []string
		calls         int
		want          error // nil, or what the error is
	}{
		{"not ordered", "cuda", nil, 1, nil},
		{"an old driver", "cuda-old", []string{"DOUBLE_CUDA_VERSION=11040"}, 1, nil},
		{"for less than the owner", "cuda", []string{"DOUBLE_CUDA_ORDERING=99"}, 1, nil},
		{"ordered for the owner", "cuda", []string{"DOUBLE_CUDA_ORDERING=100"}, 0, nil},
		{"ordered for all, no call", "cuda", []string{"DOUBLE_CUDA_ORDERING=200", "DOUBLE_CUDA_FLUSH=0"}, 0, nil},
		{"no call", "cuda", []string{"DOUBLE_CUDA_FLUSH=0"}, 0, errors.ErrUnsupported},
		{"in streams only", "cuda", []string{"DOUBLE_CUDA_FLUSH=2"}, 0, errors.ErrUnsupported},
		{"refused", "cuda", []string{"DOUBLE_FAIL=" + flushFunction + "=801"}, 0, errors.ErrUnsupported},
		{"a failure of before", "cuda", []string{"DOUBLE_FAIL=" + flushFunction + "=700"}, 0, IllegalAddress},
		{"attributes unknown", "cuda", []string{"DOUBLE_FAIL=cuDeviceGetAttribute=1"}, 0, errors.ErrUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			double(t, c.variant, c.knobs...)
			s := started(t)
			d, attr, r := s.ordering(0)
			if r != Success {
				t.Fatal(attr, r)
			}
			ctx := retained(t, s, 0)
			log := doubles.Log(t)
			err := s.flush(ctx, Device{writes: d}, "cuda:0")
			if c.want == nil && err != nil || !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if c.want != nil && c.calls == 0 {
				return // the double has nothing, or only failures, in its log
			}
			_, r = s.drv.deviceCount() // so that there is a log
			if n := log.Count(t, flushFunction); n != c.calls || r != Success {
				t.Errorf("%d calls, want %d; %v", n, c.calls, r)
			}
			log.Balanced(t, map[string]string{"cuCtxPushCurrent_v2": "cuCtxPopCurrent_v2"})
		})
	}
}

// The attributes' failure is a GPU's, and is not taken for an answer.
func TestOrderingFails(t *testing.T) {
	double(t, "cuda", "DOUBLE_FAIL=cuDeviceGetAttribute=999@7")
	s := started(t)
	if _, err := s.describe(0, gpualloc.Env{}); !errors.Is(err, Unknown) {
		t.Fatalf("%v", err)
	}
}

// Memory with the PCIe mapping has a second way, of which the driver's call
// knows nothing.
func TestFlushOfThePCIeMapping(t *testing.T) {
	double(t, "cuda")
	s := started(t)
	for m, want := range map[Mapping]bool{MappingDefault: true, MappingPCIe: false} {
		if got := s.part(0, Device{}, "", vendor.Placed{}, m, always).Flush != nil; got != want {
			t.Errorf("%v: %v, want %v", m, got, want)
		}
	}
}
