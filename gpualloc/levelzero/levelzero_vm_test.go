// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package levelzero

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
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// onGPU is doubles.OnGPU with the double of libze_loader.
func onGPU(t *testing.T, knobs ...string) (real bool) {
	t.Helper()
	return doubles.OnGPU(t, len(knobs) > 0, func() { double(t, "ze", knobs...) })
}

// Every name of a GPU opens it.
func TestVMSpecs(t *testing.T) {
	real := onGPU(t)
	devices, err := started(t).devices()
	if err != nil {
		t.Fatal(err)
	}
	d := devices[len(devices)-1]
	names := []string{fmt.Sprintf("ze:%d", d.Ordinal), "ze:" + d.PCI.String()}
	if d.UUID != "" {
		names = append(names, "ze:"+d.UUID, d.UUID)
	}
	if !real && len(names) != 4 {
		t.Errorf("the double's GPU has no UUID: %+v", d)
	}
	doubles.Specs(t, "ze", d.PCI, names...)
	if !real {
		doubles.TwoAtOneAddress(t, "ze")
	}
}

// A driver that keeps its descriptors and one that makes new ones: neither
// leaks, and none loses a descriptor that it keeps (the double aborts then).
func TestVMAllocAndExport(t *testing.T) {
	for _, mode := range []string{"fresh", "cached"} {
		t.Run(mode, func(t *testing.T) {
			onGPU(t, "DOUBLE_ZE_EXPORT="+mode)
			log := doubles.Log(t)
			before := testenv.Descriptors(t)
			a, err := gpualloc.Open("ze:0", gpualloc.Env{})
			if err != nil {
				t.Fatal(err)
			}
			allocate(t, a, false)
			log.Balanced(t, pairs)
			if after := testenv.Descriptors(t); after != before {
				t.Errorf("%d descriptors open, %d before", after, before)
			}
		})
	}
}

func TestVMAllocOnTheGPU(t *testing.T) {
	real := onGPU(t)
	a, err := gpualloc.Open("ze:0", gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	allocate(t, a, real)
}

// allocate checks a few buffers and closes everything.
func allocate(t *testing.T, a gpualloc.Allocator, real bool) {
	t.Helper()
	want := doubles.Random(100_000)
	var all []*gpualloc.Buffer
	for range 3 {
		b, err := a.Alloc(context.Background(), 100_000, gpualloc.Options{Name: "ze-test"})
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
		if seg := b.Segments()[0]; !real {
			doubles.Sees(t, seg.Buf, seg.Offset, want[i:])
		}
		if err := b.CloseFDs(); err != nil {
			t.Error(err)
		}
		got := make([]byte, 100_000-i)
		if _, err := b.ReadAt(got, 0); err != nil || !bytes.Equal(got, want[i:]) {
			t.Errorf("buffer %d shows other bytes, %v", i, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestVMExportOfUnalignedMemory(t *testing.T) {
	real := onGPU(t)
	s := started(t)
	d := first(t, s)
	ctx := contextOf(t, s, d)
	p := allocated(t, s, ctx, d, 400_000)
	q, err := s.newQueue(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	defer q.put()
	want := doubles.Random(400_000)
	if r := q.do(func(l listHandle) Result { return s.drv.toDevice(l, p, want) }); r != Success {
		t.Fatal(r)
	}
	page := uint64(os.Getpagesize())
	for _, part := range []struct{ off, n int }{{0, 1}, {0, 400_000}, {1, 399_999}, {4095, 2}, {12_345, 54_321}, {399_999, 1}} {
		for _, aligned := range []bool{false, true} {
			e, err := s.exportMemory(ctx, p+pointer(part.off), int64(part.n), ExportOptions{Name: "mine", PageAlignedIOVA: aligned}, gpualloc.Env{})
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

// plain allocates without an export descriptor, as applications that did not
// think of it do.
func plain(t *testing.T, s *session, ctx contextHandle, d Device, size uint64) pointer {
	t.Helper()
	p, r := s.drv.alloc(ctx, d.handle, size, 0, false)
	if r != Success {
		t.Fatal(r)
	}
	t.Cleanup(func() { s.drv.free(ctx, p) })
	return p
}

// Memory that was not allocated for export: a strict driver says no; another
// hands out the pool that the memory lies somewhere in, which its size betrays.
func TestVMMemoryWithoutAnExportDescriptor(t *testing.T) {
	onGPU(t, "DOUBLE_ZE_STRICT=0")
	s := started(t)
	d := first(t, s)
	ctx := contextOf(t, s, d)
	plain(t, s, ctx, d, 64<<10)
	p := plain(t, s, ctx, d, 64<<10)
	got, err := s.exportMemory(ctx, p, 64<<10, ExportOptions{}, gpualloc.Env{})
	if err == nil {
		t.Fatal(got.Close())
	}
	if !errors.Is(err, align.ErrOffset) {
		t.Errorf("got %v, want ErrOffset", err)
	}
	doubles.Words(t, err, "export descriptor", "0x200000 bytes")

	t.Setenv("DOUBLE_ZE_STRICT", "1")
	_, err = s.exportMemory(ctx, p, 64<<10, ExportOptions{}, gpualloc.Env{})
	if !errors.Is(err, UnsupportedFeature) {
		t.Errorf("got %v, want UnsupportedFeature", err)
	}
	doubles.Words(t, err, "ze_external_memory_export_desc_t")
}
