// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"testing"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// eachGPUPlace runs a test with every place of a software GPU's memory, in which
// the test's allocations must be at the end.
func eachGPUPlace(t *testing.T, run func(t *testing.T, spec string)) {
	t.Helper()
	testenv.EachGPU(t, func(t *testing.T, places []testenv.GPUPlace) {
		for _, p := range places {
			t.Run(p.Name, func(t *testing.T) {
				run(t, p.Spec)
				list := p.GPU.Buffers(t)
				if len(list) == 0 {
					t.Error("nothing is allocated")
				}
				for _, b := range list {
					if b["place"] != p.Where {
						t.Errorf("%v, want it in %q", b, p.Where)
					}
				}
			})
		}
	})
}

// Every opcode, between host memory and the memory of a GPU.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUOperations(t *testing.T) {
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{SendDepth: 8, RecvDepth: 8, SendSGE: 3, RecvSGE: 2, Inline: 64})
	host, hmr := hostMR(t, pd, 8192)
	eachGPUPlace(t, func(t *testing.T, spec string) { operations(t, pd, p, host, hmr, spec) })
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPUAccessErrors(t *testing.T) {
	pd := openPD(t)
	host, hmr := hostMR(t, pd, 4096)
	eachGPUPlace(t, func(t *testing.T, spec string) { accessErrors(t, pd, host, hmr, spec) })
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPUTwoProcesses(t *testing.T) {
	pd := openPD(t)
	eachGPUPlace(t, func(t *testing.T, spec string) {
		for _, specs := range [][2]string{{hostSpec, spec}, {spec, hostSpec}, {spec, spec}} {
			twoProcesses(t, pd, specs[0], specs[1])
		}
	})
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPUDatagrams(t *testing.T) {
	d := newDatagrams(t)
	eachGPUPlace(t, d.exchange)
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPUSharedReceives(t *testing.T) {
	pd := openPD(t)
	eachGPUPlace(t, func(t *testing.T, spec string) { sharedReceives(t, pd, spec) })
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPUAtomicWrite(t *testing.T) {
	pd := openPD(t)
	w := newWords(t, pd, waitCQ(t, pd))
	eachGPUPlace(t, w.atomicWrites)
}
