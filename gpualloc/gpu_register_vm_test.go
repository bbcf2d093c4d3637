// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpualloc_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/canary"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Register, transfer and verify with the NIC below the GPU's switch, for every
// driver's buffers in every place. Without PCI_P2PDMA in the kernel (6.12), and
// always with i915, registration moves a buffer to system memory and says
// nothing; one that must stay in VRAM is refused instead.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPURegister(t *testing.T) {
	for personality, places := range map[string][]string{
		"amdgpu": {"", "/system"}, "i915": {"", "/system"}, "xe": {"", "/vram-only", "/system"},
	} {
		for _, place := range places {
			t.Run(personality+place, func(t *testing.T) { register(t, personality, place) })
		}
	}
}

func register(t *testing.T, personality, place string) {
	g := testenv.SoftGPUs(t, "personality="+personality)[0] // gpu0, beside rxe0
	testenv.SetImporter(t, "rxe0", "pinned")
	a, err := gpualloc.Open("drm:"+g.PCI+place, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := a.Alloc(t.Context(), 1<<20, gpualloc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	info, err := b.Segments()[0].Buf.Info()
	if err != nil {
		t.Fatal(err)
	}
	nic, err := ibvfd.Open("rxe0")
	if err != nil {
		t.Fatal(err)
	}
	defer nic.Close()

	direct := testenv.AtLeast(t, "7.2") && personality != "i915" && place != "/system"
	_, err = canary.Verify(t.Context(), nic, b, canary.Options{Chunk: 256 << 10})
	if place == "/vram-only" && !direct {
		if !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("VRAM that the NIC cannot reach: %v, want EOPNOTSUPP", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	want := "system"
	if direct {
		want = "vram"
	}
	if where := g.Place(t, info.Inode); where != want {
		t.Errorf("verified in %q, want %q", where, want)
	}
	if err := errors.Join(b.Close(), a.Close(), nic.Close()); err != nil {
		t.Error(err)
	}
	if left := g.Buffers(t); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}
