// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/internal/doubles"
)

// Memory of the caller that no NIC reaches as a whole.
func TestExportBeyondTheBAR(t *testing.T) {
	double(t, "cuda")
	s := started(t)
	ctx := retained(t, s, 0)
	p := allocated(t, s, ctx, 4*huge)
	sys := t.TempDir()
	dir := filepath.Join(sys, "bus/pci/devices/0000:d1:00.0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	resource := "0x1000000 0x1ffffff 0x40200\n0x4000000000 0x40001fffff 0x14220c\n" // BAR 1 of 2 MiB
	if err := os.WriteFile(filepath.Join(dir, "resource"), []byte(resource), 0o600); err != nil {
		t.Fatal(err)
	}
	log := doubles.Log(t)
	_, err := s.exportMemory(p, 2<<20+1, ExportOptions{}, gpualloc.Env{Sys: sys})
	if !errors.Is(err, failure.ErrLimit) {
		t.Errorf("got %v, want ErrLimit", err)
	}
	doubles.Words(t, err, "BAR 1 of 0000:d1:00.0 has 2 MiB", "a part at a time")
	// Each of many exports has pages of 64 KiB of its own.
	_, err = s.exportMemory(p, 33*4096, ExportOptions{MaxLength: 4096}, gpualloc.Env{Sys: sys})
	if !errors.Is(err, failure.ErrLimit) {
		t.Errorf("got %v, want ErrLimit", err)
	}
	doubles.Words(t, err, "2162688 bytes, where BAR 1 of 0000:d1:00.0 has 2 MiB")
	if n := log.Count(t, exportFunction); n != 0 {
		t.Errorf("%d exports were made before the refusal", n)
	}
	for _, c := range []struct{ length, most, want int64 }{
		{1, 0, 64 << 10}, {2 << 20, 0, 2 << 20}, {2<<20 + 1, 0, 2<<20 + 64<<10}, {1 << 20, 1 << 20, 1 << 20},
		{1 << 20, 4096, 256 * 64 << 10}, {1 << 20, 100, 256 * 64 << 10}, {1 << 20, 64 << 10, 1 << 20},
		{math.MaxInt64, 0, math.MaxInt64}, {math.MaxInt64, 1, math.MaxInt64},
	} {
		if got := window(c.length, c.most); got != c.want {
			t.Errorf("%d bytes in pieces of %d take %d, want %d", c.length, c.most, got, c.want)
		}
	}
}

func TestPointersThatCannotBeExported(t *testing.T) {
	double(t, "cuda")
	s := started(t)
	ctx := retained(t, s, 0)
	freed := allocated(t, s, ctx, 4*huge)
	if r := s.drv.free(ctx, freed); r != Success {
		t.Fatal(r)
	}
	live := allocated(t, s, ctx, 4*huge)
	own, gone := contextHandle(doubles.NewContext(t, 0)), contextHandle(doubles.NewContext(t, 0))
	freedThere, lost := allocated(t, s, own, huge), allocated(t, s, gone, huge)
	if r := s.drv.free(own, freedThere); r != Success {
		t.Fatal(r)
	}
	doubles.DestroyContext(t, uintptr(gone))
	hole := mapped(t, s, ctx, 0, mapping{}, mapping{hole: true}, mapping{})
	noRDMA := mapped(t, s, ctx, 0, mapping{noRDMA: true})
	t.Setenv("DOUBLE_CUDA_MANAGED", "1")
	managed := allocated(t, s, ctx, huge)
	t.Setenv("DOUBLE_CUDA_MANAGED", "0")
	tests := []struct {
		name   string
		p      pointer
		length int64
		opt    ExportOptions
		knob   string
		is     error
		words  []string
	}{
		{name: "freed", p: freed, length: 1, is: InvalidValue, words: []string{"freed"}},
		{name: "freed in another context", p: freedThere, length: 1, is: InvalidValue, words: []string{"freed"}},
		{name: "of a context that was destroyed", p: lost, length: 1, is: InvalidValue, words: []string{"CUDA does not know"}},
		{name: "nil", p: 0, length: 1, is: InvalidValue, words: []string{"CUDA does not know"}},
		{name: "no bytes", p: live, length: 0, is: failure.ErrRange},
		{name: "fewer than none", p: live, length: -1, is: failure.ErrRange},
		{name: "beyond the allocation", p: live, length: 4*huge + 1, is: failure.ErrRange, words: []string{"0x800000 bytes into"}},
		{name: "beyond the address space", p: live, length: 1<<63 - 1, is: failure.ErrRange},
		{name: "a hole between mappings", p: hole, length: 3 * huge, is: failure.ErrRange, words: []string{"0x200000 bytes into"}},
		{name: "mapped without RDMA", p: noRDMA, length: huge, is: NotSupported, words: []string{"gpuDirectRDMACapable"}},
		{name: "managed", p: managed, length: 1, is: NotSupported, words: []string{"migrate"}},
		{name: "host memory", p: live, length: 1, knob: "DOUBLE_CUDA_MEMORYTYPE=1", is: errors.ErrUnsupported, words: []string{"host memory"}},
		{name: "pieces below zero", p: live, length: 1, opt: ExportOptions{MaxLength: -1}, is: failure.ErrRange},
		{name: "no memory left", p: live, length: 1, knob: "DOUBLE_FAIL=cuDevicePrimaryCtxRetain=2", is: unix.ENOMEM, words: []string{"CUDA_ERROR_OUT_OF_MEMORY"}},
		{name: "context destroyed", p: live, length: 1, knob: "DOUBLE_FAIL=cuCtxPushCurrent_v2=709", is: ContextIsDestroyed},
		{name: "the driver out of descriptors", p: live, length: 1, knob: "DOUBLE_FAIL=cuMemGetHandleForAddressRange=304", is: OperatingSystem, words: []string{"RLIMIT_NOFILE"}},
		{name: "no dma-bufs", p: live, length: 1, knob: "DOUBLE_FAIL=cuMemGetHandleForAddressRange=801", is: NotSupported, words: []string{"cuda.Devices"}},
		{name: "no PCIe mapping", p: live, length: 1, knob: "DOUBLE_CUDA_PCIE=0", opt: ExportOptions{Mapping: MappingPCIe}, is: NotSupported, words: []string{"no PCIe mapping", "mapping pcie"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log := doubles.Log(t)
			if tt.knob != "" {
				double(t, "cuda", tt.knob)
			}
			got, err := s.exportMemory(tt.p, tt.length, tt.opt, gpualloc.Env{})
			if err == nil {
				t.Fatal(got.Close())
			}
			if !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %v", err, tt.is)
			}
			doubles.Words(t, err, tt.words...)
			var e *failure.Error
			if !errors.As(err, &e) {
				t.Errorf("%v is no *failure.Error", err)
			}
			if tt.length > 0 && tt.opt.MaxLength == 0 {
				log.Balanced(t, pairs)
			}
		})
	}
}

// A range over memory of several kinds: the attributes of the first address hold for its
// own allocation, or mapping, alone.
func TestFurtherMemoryThatCannotBeExported(t *testing.T) {
	double(t, "cuda", "DOUBLE_DEVICES=3", "DOUBLE_EXPORTER=udmabuf") // which shares blocks
	s := started(t)
	ctx := retained(t, s, 0)
	two := mapped(t, s, ctx, 0, mapping{}, mapping{}, mapping{ordinal: 1})
	back := mapped(t, s, ctx, 0, mapping{ordinal: 2}, mapping{ordinal: 1}, mapping{ordinal: 2})
	noRDMA := mapped(t, s, ctx, 0, mapping{}, mapping{noRDMA: true})
	const part = 64 << 10
	plain := allocated(t, s, ctx, part)
	t.Setenv("DOUBLE_CUDA_MANAGED", "1")
	if managed := allocated(t, s, ctx, part); managed != plain+part {
		t.Fatalf("allocations at %#x and %#x are no neighbours", plain, managed)
	}
	for _, tt := range []struct {
		name   string
		p      pointer
		length int64
		is     error  // nil: it is asked for
		driver Result // its answer if asked for all of it at once; 0: not asked
		words  []string
	}{
		{"another GPU's", two, 3 * huge, failure.ErrRange, InvalidValue, []string{"0x400000 bytes into", "belongs to another GPU, cuda:1", "each GPU by itself"}},
		{"a byte of another GPU's", two + 5, 2*huge - 4, failure.ErrRange, 0, []string{"0x3ffffb bytes into"}},
		{"all but another GPU's", two, 2 * huge, nil, 0, nil},
		{"another GPU's alone", two + 2*huge, huge, nil, 0, nil},
		{"another GPU's in between", back, 3 * huge, failure.ErrRange, InvalidValue, []string{"cuda:2 (", "0x200000 bytes into", "cuda:1"}},
		{"without RDMA", noRDMA, 2 * huge, NotSupported, NotSupported, []string{"0x200000 bytes into", "gpuDirectRDMACapable"}},
		{"managed", plain, 2 * part, NotSupported, NotSupported, []string{"0x10000 bytes into", "migrate"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.driver != Success {
				if fd, r := s.drv.export(ctx, tt.p, uint64(tt.length), 0); r != tt.driver {
					t.Errorf("the driver exports %d, %v, want %v", fd, r, tt.driver)
				}
			}
			log := doubles.Log(t)
			e, err := s.exportMemory(tt.p, tt.length, ExportOptions{}, gpualloc.Env{})
			if err == nil { // where the kernel has an exporter
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			exports := log.Count(t, exportFunction)
			if tt.is == nil {
				if errors.Is(err, failure.ErrRange) || exports == 0 {
					t.Errorf("%d exports, %v", exports, err)
				}
				return
			}
			if !errors.Is(err, tt.is) || exports != 0 {
				t.Errorf("%d exports before %v, want %v", exports, err, tt.is)
			}
			doubles.Words(t, err, tt.words...)
			log.Balanced(t, pairs)
		})
	}
}

// A driver from before dma-bufs says so instead of "not supported".
func TestExportWithAnOldDriver(t *testing.T) {
	double(t, "cuda-old", "DOUBLE_CUDA_VERSION=11040")
	s := started(t)
	ctx := retained(t, s, 0)
	_, err := s.exportMemory(allocated(t, s, ctx, huge), huge, ExportOptions{}, gpualloc.Env{})
	doubles.Words(t, err, "11.4", "11.7", exportFunction)
}

// Whatever fails, nothing stays allocated, mapped or retained.
func TestAllocGivesBackWhatItTook(t *testing.T) {
	steps := map[bool][]string{
		false: {"cuDevicePrimaryCtxRetain@2", "cuMemAlloc_v2", "cuPointerSetAttribute", "cuMemsetD8_v2", "cuMemGetHandleForAddressRange"},
		true: {
			"cuDevicePrimaryCtxRetain@2", "cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess",
			"cuMemsetD8_v2", "cuMemGetHandleForAddressRange", "cuMemGetAllocationGranularity",
		},
	}
	for vmm, functions := range steps {
		for _, step := range functions {
			t.Run(fmt.Sprintf("%s vmm %v", step, vmm), func(t *testing.T) {
				double(t, "cuda")
				log := doubles.Log(t)
				s := started(t)
				d, err := s.describe(0, gpualloc.Env{})
				if err != nil {
					t.Fatal(err)
				}
				if step == "cuMemGetAllocationGranularity" {
					t.Setenv("DOUBLE_FAIL", step+"=2")
					if _, err := s.open(d, gpualloc.Env{}, vmm); !errors.Is(err, OutOfMemory) {
						t.Errorf("got %v, want OutOfMemory", err)
					}
					log.Balanced(t, pairs)
					return
				}
				e, err := s.open(d, gpualloc.Env{}, vmm)
				if err != nil {
					t.Fatal(err)
				}
				if step == "cuDevicePrimaryCtxRetain@2" {
					step = "cuDevicePrimaryCtxRetain"
				}
				t.Setenv("DOUBLE_FAIL", step+"=2")
				if _, err = e.Export(context.Background(), e.Granule(), ""); !errors.Is(err, OutOfMemory) {
					t.Errorf("got %v, want OutOfMemory", err)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
				log.Balanced(t, pairs)
			})
		}
	}
}
