// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package engine

import (
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Nearest returns the NIC beside a Buffer's GPU, whichever NIC the Buffer is registered with;
// no NIC is nearest to memory that is on no GPU.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 6.12
func TestVMNearest(t *testing.T) {
	testenv.VM(t)
	n := hostOnly(testNIC).open(t, memory.NICOptions{})
	gpus := testenv.SoftGPUs(t, "personality=amdgpu")
	if len(gpus) < 4 {
		t.Fatalf("%d GPUs", len(gpus))
	}
	for _, g := range gpus {
		t.Run(g.Name, func(t *testing.T) {
			a := must(gpualloc.Open("drm:"+g.PCI, gpualloc.Env{}))(t)
			closing(t, a)
			b := must(n.Allocate(t.Context(), a, 4096, memory.BufferOptions{}))(t)
			closingBuffer(t, b)
			if at, ok := b.GPU(); !ok || at.String() != g.PCI {
				t.Fatalf("it is on %v, %v", at, ok)
			}
			near := must(b.Nearest())(t)
			if want := "rxe" + strings.TrimPrefix(g.Name, "gpu"); near.Name != want || !strings.Contains(near.Why, g.PCI) {
				t.Errorf("%s: %s; want %s", near.Name, near.Why, want)
			}
			system := exported("system", "drm:"+g.PCI+"/system", memory.PreferDirect).make(t, n, 4096)
			if at, ok := system.GPU(); ok {
				t.Errorf("the host's memory, exported by %s, is on %v", g.PCI, at)
			}
			if near := must(system.Nearest())(t); near.Name == "" || !strings.Contains(near.Why, "on no PCI device") {
				t.Errorf("the host's memory, exported by %s: %+v", g.PCI, near)
			}
			part := must(b.Slice(0, 16))(t)
			closing(t, part)
			if again := must(part.Nearest())(t); again.Name != near.Name {
				t.Errorf("of its slice %s, %s", again.Name, again.Why)
			}
		})
	}
	vgem := exported("drm:vgem", "drm:vgem", memory.PreferDirect)
	for _, k := range []kind{hostKind, vgem} {
		b := k.make(t, n, 4096)
		if near := must(b.Nearest())(t); near.Name == "" || !strings.Contains(near.Why, "on no PCI device") {
			t.Errorf("%s: %+v", k.name, near)
		}
	}
}
