// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package rocm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/internal/doubles"
	"github.com/gpurdma/gpurdma/gpualloc/internal/runtimelib"
)

func TestNoLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libhsa-runtime64.so.1")
	t.Setenv("GPURDMA_LIBHSA", path)
	_, err := Devices(gpualloc.Env{})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	doubles.Words(t, err, path, "GPURDMA_LIBHSA")
}

// Debian 12's runtime, 5.2.3, is the real one and exports no dma-bufs. It also
// misses a library here, unless that is in the linker's path.
func TestDebiansRuntimeIsTooOld(t *testing.T) {
	const dir = "runtimes/usr/lib/x86_64-linux-gnu/"
	use(t, dir+"libhsa-runtime64.so.1")
	// The dynamic linker finds its libhsakmt among what is loaded already.
	kmt, err := filepath.Abs("../../build/" + dir + "libhsakmt.so.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runtimelib.Open(runtimelib.Spec{Names: []string{kmt}}); err != nil {
		t.Fatal(err)
	}
	_, err = Devices(gpualloc.Env{})
	if !errors.Is(err, runtimelib.ErrTooOld) {
		t.Errorf("got %v, want ErrTooOld", err)
	}
	doubles.Words(t, err, exportFunction, "ROCm 5.6", "libhsa-runtime64.so.1")
}

func TestInitFails(t *testing.T) {
	double(t, "hsa", fmt.Sprintf("DOUBLE_FAIL=hsa_init=%d", OutOfResources))
	drv, err := load()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	_, err = newSession(drv, gpualloc.Env{Dev: root})
	if !errors.Is(err, OutOfResources) {
		t.Errorf("got %v, want OutOfResources", err)
	}
	doubles.Words(t, err, "hsa_init", "HSA_STATUS_ERROR_OUT_OF_RESOURCES", "there is no "+root+"/kfd", "amdgpu")

	if err := os.WriteFile(filepath.Join(root, "kfd"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = newSession(drv, gpualloc.Env{Dev: root})
	doubles.Words(t, err, "kernel log")
}

func TestNoDevice(t *testing.T) {
	double(t, "hsa", "DOUBLE_DEVICES=0")
	_, err := Devices(gpualloc.Env{})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	doubles.Words(t, err, "no GPU", "ROCR_VISIBLE_DEVICES")
}

func TestDevices(t *testing.T) {
	double(t, "hsa", "DOUBLE_DEVICES=3", "DOUBLE_PCI=0000:3b:00.0,0001:af:1f.7")
	devices, err := Devices(gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 3 {
		t.Fatalf("got %d devices, want 3", len(devices))
	}
	d := devices[1]
	if d.Ordinal != 1 || d.Name != "gfx000" || d.Product != "HSA Double 1" || d.PCI.String() != "0001:af:1f.7" ||
		d.UUID != "GPU-1011121314151617" || d.TotalMem != 1<<30 || d.granule != 4<<10 {
		t.Errorf("got %+v", d)
	}
	t.Setenv("DOUBLE_HSA_UUID", "0")
	if devices, err = Devices(gpualloc.Env{}); err != nil || devices[0].UUID != "" {
		t.Errorf("a GPU without a UUID: got %+v, %v", devices, err)
	}
	t.Setenv("DOUBLE_HSA_NO_POOL", "1")
	_, err = Devices(gpualloc.Env{})
	doubles.Words(t, err, "none of 1 pools")
}

func TestDescribeFails(t *testing.T) {
	for _, function := range []string{
		"hsa_iterate_agents", "hsa_agent_get_info", "hsa_amd_agent_iterate_memory_pools", "hsa_amd_memory_pool_get_info",
	} {
		t.Run(function, func(t *testing.T) {
			double(t, "hsa")
			s := started(t)
			t.Setenv("DOUBLE_FAIL", function+"=0x1000")
			_, err := s.devices()
			if !errors.Is(err, Error) {
				t.Errorf("got %v, want Error", err)
			}
			doubles.Words(t, err, function, "HSA_STATUS_ERROR")
		})
	}
}

func TestCopies(t *testing.T) {
	double(t, "hsa")
	s := started(t)
	d := first(t, s)
	p := allocated(t, s, d, 2<<20)
	if st := s.drv.fill(p, 0, 2<<20/4); st != Success {
		t.Fatal(st)
	}
	want := bytes.Repeat([]byte("gpu memory "), 1000)
	if st := s.drv.toDevice(p+777, want); st != Success {
		t.Fatal(st)
	}
	got := make([]byte, len(want)+2)
	if st := s.drv.toHost(got, p+776); st != Success {
		t.Fatal(st)
	}
	if got[0] != 0 || got[len(got)-1] != 0 || !bytes.Equal(got[1:len(got)-1], want) {
		t.Error("what was read is not what was written")
	}
}

func TestPointersThatCannotBeExported(t *testing.T) {
	double(t, "hsa")
	s := started(t)
	d := first(t, s)
	freed := allocated(t, s, d, 4<<20)
	if st := s.drv.free(freed); st != Success {
		t.Fatal(st)
	}
	live := allocated(t, s, d, 4<<20)
	tests := []struct {
		name    string
		p       pointer
		length  int64
		opt     ExportOptions
		variant string
		knob    string
		is      error
		words   []string
	}{
		{name: "freed", p: freed, length: 1, is: failure.ErrRange, words: []string{"freed"}},
		{name: "nil", p: 0, length: 1, is: failure.ErrRange},
		{name: "no bytes", p: live, length: 0, is: failure.ErrRange},
		{name: "beyond the allocation", p: live, length: 4<<20 + 1, is: failure.ErrRange, words: []string{"0x400000 bytes into"}},
		{name: "beyond the address space", p: live, length: 1<<63 - 1, is: failure.ErrRange},
		{name: "host memory", p: live, length: 1, knob: "DOUBLE_HSA_LOCKED=1", is: InvalidAgent, words: []string{"host memory"}},
		{name: "pointer not answered", p: live, length: 1, knob: "DOUBLE_FAIL=hsa_amd_pointer_info=0x1000", is: Error},
		{name: "out of descriptors", p: live, length: 1, knob: "DOUBLE_FAIL=hsa_amd_portable_export_dmabuf=0x1008", is: unix.ENOMEM, words: []string{"RLIMIT_NOFILE"}},
		{name: "the kernel refuses", p: live, length: 1, knob: "DOUBLE_FAIL=hsa_amd_portable_export_dmabuf=0x1000", is: Error, words: []string{"renderD"}},
		{name: "PCIe mapping of an old runtime", p: live, length: 1, opt: ExportOptions{PCIe: true}, variant: "hsa-v1", is: errors.ErrUnsupported, words: []string{"_v2", "7.1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, p := s, tt.p
			if tt.variant != "" {
				double(t, tt.variant)
				s = started(t)
				p = allocated(t, s, first(t, s), 4<<20)
			}
			if tt.knob != "" {
				double(t, "hsa", tt.knob)
			}
			got, err := s.exportMemory(p, tt.length, tt.opt, gpualloc.Env{})
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
		})
	}
}

func TestAllocGivesBackWhatItTook(t *testing.T) {
	for _, step := range []string{"hsa_amd_memory_pool_allocate", "hsa_amd_memory_fill", exportFunction} {
		t.Run(step, func(t *testing.T) {
			double(t, "hsa")
			log := doubles.Log(t)
			s := started(t)
			e := &exporter{s: s, d: first(t, s)}
			t.Setenv("DOUBLE_FAIL", step+"=0x1008")
			if _, err := e.Export(context.Background(), e.Granule(), ""); !errors.Is(err, OutOfResources) {
				t.Errorf("got %v, want OutOfResources", err)
			}
			log.Balanced(t, pairs)
		})
	}
}

// shows writes the files by which amdgpu says how much of the memory its BAR shows.
func shows(t *testing.T, sys string, d Device, visible int64) {
	t.Helper()
	dir := filepath.Join(sys, "bus/pci/devices", d.PCI.String())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, bytes := range map[string]int64{"mem_info_vram_total": d.TotalMem, "mem_info_vis_vram_total": visible} {
		if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendln(nil, bytes), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Only VRAM within the BAR can be reached; amdgpu says how much that is.
func TestVisibleLimit(t *testing.T) {
	double(t, "hsa")
	d := first(t, started(t))
	root := t.TempDir()
	shows(t, root, d, 256<<20)
	l, ok := visibleLimit(d, gpualloc.Env{Sys: root})
	if !ok || l.Bytes != 256<<20 {
		t.Errorf("got %+v, %v", l, ok)
	}
	a, err := gpualloc.Open("rocm:0", gpualloc.Env{Sys: root})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	_, err = a.Alloc(context.Background(), 512<<20, gpualloc.Options{})
	if !errors.Is(err, failure.ErrLimit) {
		t.Errorf("got %v, want ErrLimit", err)
	}
	doubles.Words(t, err, "256 MiB", "resizable BAR")
	shows(t, root, d, 1<<30)
	if l, ok := visibleLimit(d, gpualloc.Env{Sys: root}); ok {
		t.Errorf("all is visible, and still limited: %+v", l)
	}
}

// However little of an allocation is exported, the dma-buf is of all of it, and amdgpu
// wants all of a dma-buf in the BAR.
func TestExportBeyondTheBAR(t *testing.T) {
	double(t, "hsa", "DOUBLE_DEVICES=4")
	s := started(t)
	devices, err := s.devices()
	if err != nil {
		t.Fatal(err)
	}
	d := devices[3] // whose memory no other test uses
	large := allocated(t, s, d, 4<<20)
	small := allocated(t, s, d, 512<<10)
	if next := allocated(t, s, d, 512<<10); next != small+512<<10 {
		t.Fatalf("allocations at %#x and %#x are no neighbours", small, next)
	}
	sys := t.TempDir()
	for _, c := range []struct {
		name    string
		p       pointer
		length  int64
		visible int64
		words   string // of the refusal, "" for none
	}{
		{"a part", large, 1, 2 << 20, "the whole allocation, 4 MiB, where the memory in BAR 0 of 0000:d4:00.0 has 2 MiB"},
		{"its end", large + 4<<20 - 1, 1, 4<<20 - 1, "the whole allocation, 4 MiB"},
		{"all of the BAR", large, 1, 4 << 20, ""},
		{"two", small + 512<<10 - 1, 2, 1<<20 - 1, "2 whole allocations, 1 MiB, where"},
		{"one of two", small + 512<<10 - 1, 1, 1<<20 - 1, ""},
		{"two that fit", small + 512<<10 - 1, 2, 1 << 20, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			shows(t, sys, d, c.visible)
			log := doubles.Log(t)
			e, err := s.exportMemory(c.p, c.length, ExportOptions{}, gpualloc.Env{Sys: sys})
			if err == nil { // where the kernel has an exporter
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			exports := log.Count(t, exportFunction)
			if c.words == "" {
				if errors.Is(err, failure.ErrLimit) || exports == 0 {
					t.Errorf("%d exports, %v", exports, err)
				}
				return
			}
			if !errors.Is(err, failure.ErrLimit) || exports != 0 {
				t.Errorf("%d exports before %v", exports, err)
			}
			doubles.Words(t, err, c.words, "resizable BAR", "allocate less")
		})
	}
}
