// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/align"
	"github.com/gpurdma/gpurdma/gpualloc/internal/doubles"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// onGPU is doubles.OnGPU with the double of libcuda.
func onGPU(t *testing.T, knobs ...string) (real bool) {
	t.Helper()
	return doubles.OnGPU(t, len(knobs) > 0, func() { double(t, "cuda", knobs...) })
}

// udmabuf skips on kernels without it: vgem, which stands in, exports whole
// blocks only.
func udmabuf(t *testing.T) {
	t.Helper()
	testenv.Need(t, "udmabuf", "6.12", testenv.Node("/dev/udmabuf"))
}

func TestVMAllocAndExport(t *testing.T) {
	real := onGPU(t)
	for _, spec := range []string{"cuda:0", "cuda:0/vmm"} {
		t.Run(spec, func(t *testing.T) {
			a, err := gpualloc.Open(spec, gpualloc.Env{})
			if err != nil {
				t.Fatal(err)
			}
			b, err := a.Alloc(context.Background(), 100_000, gpualloc.Options{Name: "cuda-test"})
			if err != nil {
				t.Fatal(err)
			}
			// Buffers outlive their allocator.
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			if b.Size() < 100_000 || b.Kind() != gpualloc.KindVRAM {
				t.Errorf("got %d bytes of %v", b.Size(), b.Kind())
			}
			seg := b.Segments()[0]
			info, err := seg.Buf.Info()
			if err != nil {
				t.Fatal(err)
			}
			if info.Name != "cuda-test" || seg.Addr == 0 {
				t.Errorf("got name %q, address %#x", info.Name, seg.Addr)
			}
			zero := make([]byte, b.Size())
			got := make([]byte, b.Size())
			if _, err := b.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, zero) {
				t.Error("the memory is not zeroed")
			}
			if err := b.FlushWrites(); err != nil && !(real && errors.Is(err, errors.ErrUnsupported)) {
				t.Error(err)
			}
			want := doubles.Random(50_001)
			if _, err := b.WriteAt(want, 49_999); err != nil {
				t.Fatal(err)
			}
			if !real {
				doubles.Sees(t, seg.Buf, seg.Offset+49_999, want)
			}
			if err := b.CloseFDs(); err != nil {
				t.Error(err)
			}
			if _, err := b.ReadAt(got[:50_001], 49_999); err != nil || !bytes.Equal(got[:50_001], want) {
				t.Errorf("after CloseFDs: other bytes, %v", err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if _, err := b.ReadAt(got, 0); !errors.Is(err, os.ErrClosed) {
				t.Errorf("after Close: got %v, want ErrClosed", err)
			}
		})
	}
}

// Every name of a GPU opens it.
func TestVMSpecs(t *testing.T) {
	real := onGPU(t)
	devices, err := Devices(gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	d := devices[len(devices)-1]
	doubles.Specs(t, "cuda", d.PCI, fmt.Sprintf("cuda:%d", d.Ordinal), "cuda:"+d.PCI.String(), "cuda:"+d.UUID, d.UUID, d.UUID+"/vmm")
	if !real {
		doubles.TwoAtOneAddress(t, "cuda")
	}
}

// After everything is closed, all of the GPU's memory is free again and every
// context, mapping and handle given back.
func TestVMNothingIsLeft(t *testing.T) {
	onGPU(t, "DOUBLE_DEVICES=2")
	log := doubles.Log(t)
	s := started(t)
	for _, spec := range []string{"cuda:0", "cuda:1", "cuda:1/vmm"} {
		a, err := gpualloc.Open(spec, gpualloc.Env{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			b, err := a.Alloc(context.Background(), int64(1+i*7777), gpualloc.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	log.Balanced(t, pairs)
	ctx := retained(t, s, 0)
	if free, total, r := s.drv.memInfo(ctx); free != total || r != Success {
		t.Errorf("%d of %d bytes free, %v", free, total, r)
	}
}

// Memory of the caller, at addresses and lengths that are no multiples of
// anything, next to other memory in the same page and block.
func TestVMExportOfUnalignedMemory(t *testing.T) {
	real := onGPU(t)
	if !real {
		udmabuf(t)
	}
	s := started(t)
	ctx := retained(t, s, 0)
	allocated(t, s, ctx, 700) // a neighbour, so that what follows begins inside a page
	size := uint64(300_001)
	p := allocated(t, s, ctx, size)
	want := doubles.Random(int(size))
	if r := s.drv.toDevice(ctx, p, want); r != Success {
		t.Fatal(r)
	}
	for _, part := range []struct{ off, n int }{{0, 1}, {0, int(size)}, {1, int(size) - 1}, {4095, 2}, {12_345, 54_321}, {int(size) - 1, 1}} {
		for _, aligned := range []bool{false, true} {
			e, err := s.exportMemory(p+pointer(part.off), int64(part.n), ExportOptions{Name: "mine", PageAlignedIOVA: aligned}, gpualloc.Env{})
			if err != nil {
				t.Fatalf("%+v: %v", part, err)
			}
			seg, mr := e.Segments()[0], e.MRs[0]
			if seg.Addr != uint64(p)+uint64(part.off) || seg.Size != int64(part.n) {
				t.Errorf("%+v: got %+v", part, seg)
			}
			page := uint64(os.Getpagesize())
			if (mr.Offset^mr.IOVA)%page != 0 || aligned && mr.IOVA%page != 0 || mr.IOVA+mr.Lead != seg.Addr || mr.Offset+mr.Length > uint64(seg.Buf.Size()) {
				t.Errorf("%+v: MR %+v of %d bytes", part, mr, seg.Buf.Size())
			}
			if !real {
				doubles.Sees(t, seg.Buf, seg.Offset, want[part.off:part.off+part.n])
			}
			got := make([]byte, part.n)
			if _, err := e.ReadAt(got, 0); err != nil || !bytes.Equal(got, want[part.off:part.off+part.n]) {
				t.Errorf("%+v: the view shows other bytes, %v", part, err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	// The memory is still the caller's.
	got := make([]byte, size)
	if r := s.drv.toHost(ctx, got, p); r != Success || !bytes.Equal(got, want) {
		t.Errorf("after Close the memory changed, %v", r)
	}
}

// Mappings of the virtual memory API next to each other, as frameworks grow
// their buffers (expandable segments): the last byte counts as much as the
// first, whatever the driver makes of a range over several.
func TestVMExportOfManyMappings(t *testing.T) {
	onGPU(t, "DOUBLE_DEVICES=2")
	const n = 5
	for _, driver := range []struct {
		export   string
		segments int
	}{
		{"exact", 1},  // joins neighbours
		{"single", n}, // refuses several
		{"short", n},  // exports the first, and says nothing
	} {
		t.Run(driver.export, func(t *testing.T) {
			onGPU(t, "DOUBLE_CUDA_EXPORT="+driver.export)
			udmabuf(t)
			s := started(t)
			ctx := retained(t, s, 1)
			p := mapped(t, s, ctx, 1, slices.Repeat([]mapping{{ordinal: 1}}, n)...)
			want := doubles.Random(n*huge - 1000)
			if r := s.drv.toDevice(ctx, p+500, want); r != Success {
				t.Fatal(r)
			}
			e, err := s.exportMemory(p+500, int64(len(want)), ExportOptions{}, gpualloc.Env{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			segs := e.Segments()
			if len(segs) != driver.segments {
				t.Errorf("got %d segments, want %d", len(segs), driver.segments)
			}
			at := int64(0)
			for _, seg := range segs {
				if seg.Addr != uint64(p)+500+uint64(at) {
					t.Errorf("segment at %#x, want %#x", seg.Addr, uint64(p)+500+uint64(at))
				}
				doubles.Sees(t, seg.Buf, seg.Offset, want[at:at+seg.Size])
				at += seg.Size
			}
			if at != int64(len(want)) {
				t.Errorf("the segments have %d bytes, want %d", at, len(want))
			}
			last := make([]byte, 1)
			if _, err := e.ReadAt(last, int64(len(want))-1); err != nil || last[0] != want[len(want)-1] {
				t.Errorf("the last byte is %#x, %v", last[0], err)
			}
		})
	}
}

// On a GPU, mappings that the driver joins or does not: either way all bytes
// are exported.
func TestVMExportOfMappingsOfTheGPU(t *testing.T) {
	if !onGPU(t) {
		udmabuf(t)
	}
	s := started(t)
	ctx := retained(t, s, 0)
	p := mapped(t, s, ctx, 0, mapping{}, mapping{}, mapping{})
	e, err := s.exportMemory(p+1, 3*huge-2, ExportOptions{}, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if size := e.Size(); size != 3*huge-2 {
		t.Errorf("%d bytes exported", size)
	}
	t.Logf("%d segments for 3 mappings", len(e.Segments()))
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A descriptor of the whole block around the range is refused: its offset is
// not known, and 0 would be the memory of another allocation.
func TestVMDescriptorOfTheWholeBlock(t *testing.T) {
	onGPU(t, "DOUBLE_CUDA_EXPORT=block")
	udmabuf(t)
	s := started(t)
	ctx := retained(t, s, 0)
	allocated(t, s, ctx, 64<<10)
	p := allocated(t, s, ctx, 64<<10)
	got, err := s.exportMemory(p, 64<<10, ExportOptions{}, gpualloc.Env{})
	if err == nil {
		t.Fatal(got.Close())
	}
	if !errors.Is(err, align.ErrOffset) {
		t.Errorf("got %v, want ErrOffset", err)
	}
	doubles.Words(t, err, "0x200000 bytes, more than the 0x10000")
}

// Which mapping is asked for, and what is got, with drivers that have the PCIe
// mapping and that do not.
func TestVMMapping(t *testing.T) {
	onGPU(t, "DOUBLE_DEVICES=2")
	for _, tt := range []struct {
		pcie string
		ask  Mapping
		got  Mapping
		is   error
	}{
		{"1", MappingDefault, MappingDefault, nil},
		{"1", MappingPCIe, MappingPCIe, nil},
		{"1", MappingDataDirect, MappingPCIe, nil},
		{"0", MappingDefault, MappingDefault, nil},
		{"0", MappingPCIe, 0, NotSupported},
		{"0", MappingDataDirect, MappingDefault, nil},
	} {
		t.Run(tt.pcie+" "+tt.ask.String(), func(t *testing.T) {
			onGPU(t, "DOUBLE_CUDA_PCIE="+tt.pcie)
			s := started(t)
			ctx := retained(t, s, 0)
			e, err := s.exportMemory(allocated(t, s, ctx, huge), huge, ExportOptions{Mapping: tt.ask}, gpualloc.Env{})
			if !errors.Is(err, tt.is) {
				t.Fatalf("got %v, want %v", err, tt.is)
			}
			if err != nil {
				return
			}
			if e.Mapping != tt.got {
				t.Errorf("got mapping %v, want %v", e.Mapping, tt.got)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Pieces with a descriptor each, for IOMMUs that map all of one; and the limit
// of open files said before the first.
func TestVMPiecesAndTheLimitOfOpenFiles(t *testing.T) {
	onGPU(t, "DOUBLE_CUDA_VERSION=12080")
	udmabuf(t)
	s := started(t)
	ctx := retained(t, s, 0)
	p := allocated(t, s, ctx, 8*huge)
	want := doubles.Random(8 * huge)
	if r := s.drv.toDevice(ctx, p, want); r != Success {
		t.Fatal(r)
	}
	e, err := s.exportMemory(p, 8*huge, ExportOptions{MaxLength: 3 * huge}, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if segs := e.Segments(); len(segs) != 3 {
		t.Errorf("got %d segments, want 3", len(segs))
	}
	at := int64(0)
	for _, seg := range e.Segments() {
		doubles.Sees(t, seg.Buf, seg.Offset, want[at:at+seg.Size])
		at += seg.Size
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}

	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	low := was
	low.Cur = 200
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	log := doubles.Log(t)
	_, err = s.exportMemory(p, 8*huge, ExportOptions{MaxLength: int64(os.Getpagesize())}, gpualloc.Env{})
	if !errors.Is(err, failure.ErrLimit) {
		t.Errorf("got %v, want ErrLimit", err)
	}
	doubles.Words(t, err, "4096 exports", "RLIMIT_NOFILE")
	if n := log.Count(t, exportFunction); n != 0 {
		t.Errorf("%d exports were made before the refusal", n)
	}
}
