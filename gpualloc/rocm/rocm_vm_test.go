// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package rocm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/gpualloc/internal/doubles"
)

// onGPU is doubles.OnGPU with a double of libhsa-runtime64.
func onGPU(t *testing.T, variant string, knobs ...string) (real bool) {
	t.Helper()
	return doubles.OnGPU(t, len(knobs) > 0 || variant != "hsa", func() { double(t, variant, knobs...) })
}

// Every name of a GPU opens it.
func TestVMSpecs(t *testing.T) {
	real := onGPU(t, "hsa")
	devices, err := started(t).devices()
	if err != nil {
		t.Fatal(err)
	}
	d := devices[len(devices)-1]
	names := []string{fmt.Sprintf("rocm:%d", d.Ordinal), "rocm:" + d.PCI.String()}
	if d.UUID != "" {
		names = append(names, "rocm:"+d.UUID, d.UUID)
	}
	if !real && len(names) != 4 {
		t.Errorf("the double's GPU has no UUID: %+v", d)
	}
	doubles.Specs(t, "rocm", d.PCI, names...)
	if !real {
		doubles.TwoAtOneAddress(t, "rocm")
	}
}

func TestVMAllocAndExport(t *testing.T) {
	for _, variant := range []string{"hsa", "hsa-v1"} {
		t.Run(variant, func(t *testing.T) {
			real := onGPU(t, variant)
			log := doubles.Calls{}
			if !real {
				log = doubles.Log(t)
			}
			a, err := gpualloc.Open("rocm:0", gpualloc.Env{})
			if err != nil {
				t.Fatal(err)
			}
			var all []*gpualloc.Buffer
			want := doubles.Random(100_000)
			// Small ones share a block: the offsets differ.
			for range 3 {
				b, err := a.Alloc(context.Background(), 100_000, gpualloc.Options{Name: "rocm-test"})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, b)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			for i, b := range all {
				got := make([]byte, b.Size())
				if _, err := b.ReadAt(got, 0); err != nil || !bytes.Equal(got, make([]byte, b.Size())) {
					t.Errorf("buffer %d is not zeroed, %v", i, err)
				}
				if _, err := b.WriteAt(want[i:], 0); err != nil {
					t.Fatal(err)
				}
			}
			for i, b := range all {
				seg := b.Segments()[0]
				if !real {
					doubles.Sees(t, seg.Buf, seg.Offset, want[i:])
				}
				got := make([]byte, 100_000-i)
				if _, err := b.ReadAt(got, 0); err != nil || !bytes.Equal(got, want[i:]) {
					t.Errorf("buffer %d shows other bytes, %v", i, err)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
			if !real {
				if a, b := all[0].Segments()[0].Offset, all[1].Segments()[0].Offset; a == b {
					t.Errorf("both offsets are %#x: the double shares no block", a)
				}
				log.Balanced(t, pairs)
			}
		})
	}
}

// Memory of the caller, at any address and length, over two allocations.
func TestVMExportOfUnalignedMemory(t *testing.T) {
	real := onGPU(t, "hsa")
	s := started(t)
	d := first(t, s)
	allocated(t, s, d, 8<<10)
	p := allocated(t, s, d, 400_000)
	want := doubles.Random(400_000)
	if st := s.drv.toDevice(p, want); st != Success {
		t.Fatal(st)
	}
	page := uint64(os.Getpagesize())
	for _, part := range []struct{ off, n int }{{0, 1}, {0, 400_000}, {1, 399_999}, {4095, 2}, {12_345, 54_321}, {399_999, 1}} {
		for _, aligned := range []bool{false, true} {
			e, err := s.exportMemory(p+pointer(part.off), int64(part.n), ExportOptions{Name: "mine", PageAlignedIOVA: aligned}, gpualloc.Env{})
			if err != nil {
				t.Fatalf("%+v: %v", part, err)
			}
			seg, mr := e.Segments()[0], e.MRs[0]
			if seg.Addr != uint64(p)+uint64(part.off) || seg.Size != int64(part.n) || (mr.Offset^mr.IOVA)%page != 0 ||
				aligned && mr.IOVA%page != 0 || mr.IOVA+mr.Lead != seg.Addr || mr.Offset+mr.Length > uint64(seg.Buf.Size()) {
				t.Errorf("%+v: got %+v, %+v of %d bytes", part, seg, mr, seg.Buf.Size())
			}
			if !real {
				doubles.Sees(t, seg.Buf, seg.Offset, want[part.off:part.off+part.n])
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A runtime that never fills in offsets must not be believed: the memory is
// somewhere in the block.
func TestVMOffsetThatIsNeverFilledIn(t *testing.T) {
	onGPU(t, "hsa", "DOUBLE_HSA_EXPORT=zero")
	s := started(t)
	d := first(t, s)
	allocated(t, s, d, 8<<10)
	p := allocated(t, s, d, 64<<10)
	got, err := s.exportMemory(p, 64<<10, ExportOptions{}, gpualloc.Env{})
	if err == nil {
		t.Fatal(got.Close())
	}
	if !errors.Is(err, align.ErrOffset) {
		t.Errorf("got %v, want ErrOffset", err)
	}
	doubles.Words(t, err, "offset 0", "0x200000 bytes")
}

// The first allocation of a block does lie at 0, and that can be proven.
func TestVMFirstOfABlock(t *testing.T) {
	onGPU(t, "hsa", "DOUBLE_DEVICES=3")
	s := started(t)
	devices, err := s.devices()
	if err != nil {
		t.Fatal(err)
	}
	p := allocated(t, s, devices[2], 64<<10)
	log := doubles.Log(t)
	e, err := s.exportMemory(p, 64<<10, ExportOptions{}, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if seg := e.Segments()[0]; seg.Offset != 0 || seg.Buf.Size() != 2<<20 {
		t.Errorf("got offset %#x of %#x bytes: not the case that is tested", seg.Offset, seg.Buf.Size())
	}
	if n := log.Count(t, exportFunction); n != 2 {
		t.Errorf("%d exports, want a second one for the proof", n)
	}
	if a, b := log.Count(t, exportFunction), log.Count(t, "hsa_amd_portable_close_dmabuf"); a != b {
		t.Errorf("%d exports and %d closed", a, b)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestVMPCIeMapping(t *testing.T) {
	onGPU(t, "hsa", "DOUBLE_DEVICES=1")
	s := started(t)
	p := allocated(t, s, first(t, s), 2<<20)
	log := doubles.Log(t)
	e, err := s.exportMemory(p, 2<<20, ExportOptions{PCIe: true}, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if n := log.Count(t, exportFunction+"_v2"); n != 1 {
		t.Errorf("the call with flags was made %d times", n)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
