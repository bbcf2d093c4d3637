// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// ofGPU returns memory of a software GPU that stays where registration has put it.
func ofGPU(p testenv.GPUPlace) kind {
	k := exported(p.Name, p.Spec, memory.PreferDirect)
	allocate := k.make
	k.make = func(t testing.TB, n *memory.NIC, size int64) *memory.Buffer {
		t.Helper()
		b := allocate(t, n, size)
		at, ok := b.GPU()
		if asked := p.Name != "system"; ok != asked || b.GPUDirect() != asked || asked && at.String() != p.GPU.PCI {
			t.Errorf("%s: on GPU %v, %v; GPUDirect %v", p.Spec, at, ok, b.GPUDirect())
		}
		check := func() {
			if at := p.GPU.Place(t, b.Inodes()[0]); at != p.Where {
				t.Errorf("%s: the driver has it in %q, want %q", p.Spec, at, p.Where)
			}
		}
		check()
		t.Cleanup(func() {
			if b.Retain() != nil {
				return // the endpoint is closed
			}
			check()
			if err := b.Release(); err != nil {
				t.Error(err)
			}
		})
		return b
	}
	return k
}

// onGPU is the setting with a software GPU: its memory in every place, and host memory.
func onGPU(t testing.TB, places []testenv.GPUPlace) setting {
	noGrowth(t, testNIC)
	s := hostOnly(testNIC)
	for _, p := range places {
		s.kinds = append(s.kinds, ofGPU(p))
	}
	return s
}

func onEachGPU(t *testing.T, run func(t *testing.T, s setting)) {
	testenv.EachGPU(t, func(t *testing.T, places []testenv.GPUPlace) { run(t, onGPU(t, places)) })
}

// ofEachGPU is that without host memory, which other machines have, too.
func ofEachGPU(t *testing.T, run func(t *testing.T, s setting)) {
	onEachGPU(t, func(t *testing.T, s setting) {
		s.kinds = s.kinds[1:]
		run(t, s)
	})
}

// Every operation between every two places of a GPU's memory, and the host's; on a kernel
// without peer-to-peer all of it is in system memory.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUOperations(t *testing.T) { onEachGPU(t, testOperations) }

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPURandomOperations(t *testing.T) {
	ofEachGPU(t, func(t *testing.T, s setting) { testRandomOperations(t, s, testenv.Count(100)) })
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPUSlices(t *testing.T) { ofEachGPU(t, testSlices) }

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPUFences(t *testing.T) {
	ofEachGPU(t, func(t *testing.T, s setting) { testFences(t, s, testenv.Count(10)) })
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPUForgedToken(t *testing.T) { ofEachGPU(t, testForgedToken) }

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPUCloseUnderTraffic(t *testing.T) { ofEachGPU(t, testCloseUnderTraffic) }

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMGPUTwoProcesses(t *testing.T) {
	ofEachGPU(t, func(t *testing.T, s setting) { testTwoProcesses(t, s, sameHost, testenv.Count(20)) })
}
