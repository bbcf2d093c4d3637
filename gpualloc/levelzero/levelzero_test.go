// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package levelzero

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/internal/doubles"
)

func TestNoLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libze_loader.so.1")
	t.Setenv("GPURDMA_LIBZE", path)
	_, err := Devices()
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	doubles.Words(t, err, path, "GPURDMA_LIBZE")
}

// Debian's real loader, on a machine without any driver for it.
func TestDebiansLoaderFindsNoDriver(t *testing.T) {
	use(t, "runtimes/usr/lib/x86_64-linux-gnu/libze_loader.so.1")
	_, err := Devices()
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	doubles.Words(t, err, "zeInit", "ZE_RESULT_ERROR_UNINITIALIZED", "intel-level-zero-gpu")
}

func TestInitFails(t *testing.T) {
	for code, is := range map[Result]error{
		InsufficientPermissions: fs.ErrPermission,
		DependencyUnavailable:   fs.ErrNotExist,
		UnsupportedVersion:      errors.ErrUnsupported,
		OutOfHostMemory:         unix.ENOMEM,
		0x70000099:              Result(0x70000099),
	} {
		double(t, "ze", fmt.Sprintf("DOUBLE_FAIL=zeInit=%d", code))
		drv, err := load()
		if err != nil {
			t.Fatal(err)
		}
		_, err = newSession(drv)
		if !errors.Is(err, is) || !errors.Is(err, code) {
			t.Errorf("got %v, want %v", err, is)
		}
		doubles.Words(t, err, "zeInit", code.Name())
	}
}

func TestNoDevice(t *testing.T) {
	double(t, "ze", "DOUBLE_DEVICES=0")
	_, err := Devices()
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	doubles.Words(t, err, "1 drivers list no GPU", "ZE_AFFINITY_MASK")
}

func TestDevices(t *testing.T) {
	double(t, "ze", "DOUBLE_DEVICES=3", "DOUBLE_PCI=0000:3b:00.0,0001:af:1f.7")
	devices, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 3 {
		t.Fatalf("got %d devices, want 3", len(devices))
	}
	d := devices[1]
	if d.Ordinal != 1 || d.Name != "Level Zero Double 1" || d.PCI.String() != "0001:af:1f.7" ||
		d.UUID != "10111213-1415-1617-1819-1a1b1c1d1e1f" || d.TotalMem != 1<<30 || d.MaxSize != 1<<29 || !d.DMABuf || d.Integrated {
		t.Errorf("got %+v", d)
	}
}

func TestDescribeFails(t *testing.T) {
	for _, function := range []string{
		"zeDriverGet", "zeDeviceGet", "zeDeviceGetProperties", "zeDeviceGetMemoryProperties",
		"zeDeviceGetExternalMemoryProperties", "zeDevicePciGetPropertiesExt",
	} {
		t.Run(function, func(t *testing.T) {
			double(t, "ze")
			s := started(t)
			t.Setenv("DOUBLE_FAIL", function+"=0x70000001")
			_, err := s.devices()
			if !errors.Is(err, DeviceLost) {
				t.Errorf("got %v, want DeviceLost", err)
			}
			doubles.Words(t, err, function, "ZE_RESULT_ERROR_DEVICE_LOST")
		})
	}
}

func TestDriverWithoutDMABufs(t *testing.T) {
	double(t, "ze", "DOUBLE_ZE_DMABUF=0")
	_, err := gpualloc.Open("ze:0", gpualloc.Env{})
	if !errors.Is(err, gpualloc.ErrUnavailable) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnavailable and ErrUnsupported", err)
	}
	doubles.Words(t, err, "memoryAllocationExportTypes", "drm:0000:d1:00.0")
}

func TestCopies(t *testing.T) {
	double(t, "ze")
	log := doubles.Log(t)
	s := started(t)
	d := first(t, s)
	ctx := contextOf(t, s, d)
	q, err := s.newQueue(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	p := allocated(t, s, ctx, d, 2<<20)
	want := bytes.Repeat([]byte("gpu memory "), 1000)
	got := make([]byte, len(want)+2)
	for _, step := range []func(listHandle) Result{
		func(l listHandle) Result { return s.drv.zero(l, p, 2<<20) },
		func(l listHandle) Result { return s.drv.toDevice(l, p+777, want) },
		func(l listHandle) Result { return s.drv.toHost(l, got, p+776) },
	} {
		if r := q.do(step); r != Success {
			t.Fatal(r)
		}
	}
	if got[0] != 0 || got[len(got)-1] != 0 || !bytes.Equal(got[1:len(got)-1], want) {
		t.Error("what was read is not what was written")
	}
	// A queue lives as long as its last user.
	q.get()
	for want := range 2 {
		if n := log.Count(t, "zeCommandListAppendMemoryCopy"); n != 2 {
			t.Errorf("%d copies in the log", n)
		}
		if err := q.put(); err != nil {
			t.Error(err)
		}
		if n := destroyed(t, log); n != want {
			t.Errorf("%d lists destroyed, want %d", n, want)
		}
	}
}

func destroyed(t *testing.T, c doubles.Calls) int { return c.Count(t, "zeCommandListDestroy") }

func TestPointersThatCannotBeExported(t *testing.T) {
	double(t, "ze")
	s := started(t)
	d := first(t, s)
	ctx := contextOf(t, s, d)
	freed := allocated(t, s, ctx, d, 4<<20)
	if r := s.drv.free(ctx, freed); r != Success {
		t.Fatal(r)
	}
	live := allocated(t, s, ctx, d, 4<<20)
	other, r := s.drv.context(d.driver)
	if r != Success {
		t.Fatal(r)
	}
	tests := []struct {
		name   string
		ctx    contextHandle
		p      pointer
		length int64
		knob   string
		is     error
		words  []string
	}{
		{name: "freed", ctx: ctx, p: freed, length: 1, is: failure.ErrRange, words: []string{"freed"}},
		{name: "of another context", ctx: other, p: live, length: 1, is: failure.ErrRange, words: []string{"another context"}},
		{name: "no context", p: live, length: 1, is: InvalidNullHandle, words: []string{"context"}},
		{name: "nil", ctx: ctx, length: 1, is: failure.ErrRange},
		{name: "no bytes", ctx: ctx, p: live, is: failure.ErrRange},
		{name: "beyond the allocation", ctx: ctx, p: live, length: 4<<20 + 1, is: failure.ErrRange, words: []string{"beyond its allocation"}},
		{name: "beyond the address space", ctx: ctx, p: live, length: 1<<63 - 1, is: failure.ErrRange},
		{name: "shared memory", ctx: ctx, p: live, length: 1, knob: "DOUBLE_ZE_MEMORYTYPE=3", is: errors.ErrUnsupported, words: []string{"migrate"}},
		{name: "host memory", ctx: ctx, p: live, length: 1, knob: "DOUBLE_ZE_MEMORYTYPE=1", is: errors.ErrUnsupported, words: []string{"host memory"}},
		{name: "success without a descriptor", ctx: ctx, p: live, length: 1, knob: "DOUBLE_ZE_NO_FD=1", is: errors.ErrUnsupported, words: []string{"export_desc"}},
		{name: "out of descriptors", ctx: ctx, p: live, length: 1, knob: "DOUBLE_FAIL=zeMemGetAllocProperties=0x70000002", is: unix.ENOMEM, words: []string{"RLIMIT_NOFILE"}},
		{name: "no range", ctx: ctx, p: live, length: 1, knob: "DOUBLE_FAIL=zeMemGetAddressRange=0x78000004", is: InvalidArgument},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.knob != "" {
				double(t, "ze", tt.knob)
			}
			got, err := s.exportMemory(tt.ctx, tt.p, tt.length, ExportOptions{}, gpualloc.Env{})
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

// However little of an allocation is exported, the dma-buf is of all of it, and no
// device reaches what is not in the BAR.
func TestExportBeyondTheBAR(t *testing.T) {
	double(t, "ze")
	s := started(t)
	d := first(t, s)
	ctx := contextOf(t, s, d)
	p := allocated(t, s, ctx, d, 4<<20)
	sys := t.TempDir()
	dir := filepath.Join(sys, "bus/pci/devices", d.PCI.String())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	resource := "0x1000000 0x1ffffff 0x140204\n0x0 0x0 0x0\n0x4000000000 %#x 0x14220c\n" // BAR 2
	for _, c := range []struct {
		name   string
		bar    uint64
		p      pointer
		length int64
		fits   bool
	}{
		{"all of it", 2 << 20, p, 4 << 20, false},
		{"a part", 2 << 20, p, 1, false},
		{"its end", 4<<20 - 4096, p + 4<<20 - 1, 1, false},
		{"all of the BAR", 4 << 20, p, 4 << 20, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, "resource"), fmt.Appendf(nil, resource, 0x4000000000+c.bar-1), 0o600); err != nil {
				t.Fatal(err)
			}
			log := doubles.Log(t)
			e, err := s.exportMemory(ctx, c.p, c.length, ExportOptions{}, gpualloc.Env{Sys: sys})
			if err == nil { // where the kernel has an exporter
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			exports := 0
			for _, call := range log.Args(t, "zeMemGetAllocProperties") {
				if strings.HasSuffix(call, "export 1") {
					exports++
				}
			}
			if c.fits {
				if errors.Is(err, failure.ErrLimit) || exports == 0 {
					t.Errorf("%d exports, %v", exports, err)
				}
				return
			}
			if !errors.Is(err, failure.ErrLimit) || exports != 0 {
				t.Errorf("%d exports before %v", exports, err)
			}
			doubles.Words(t, err, "the whole allocation, 4 MiB, where BAR 2 of 0000:d1:00.0 has", "resizable BAR", "allocate less")
		})
	}
	integrated := d
	integrated.Integrated = true
	if l, ok := barLimit(integrated, gpualloc.Env{Sys: sys}); ok {
		t.Errorf("a GPU without memory of its own is limited: %+v", l)
	}
}

func TestAllocGivesBackWhatItTook(t *testing.T) {
	for _, step := range []string{
		"zeCommandListCreateImmediate", "zeMemAllocDevice", "zeCommandListAppendMemoryFill", "zeMemGetAllocProperties",
	} {
		t.Run(step, func(t *testing.T) {
			double(t, "ze")
			log := doubles.Log(t)
			s := started(t)
			d := first(t, s)
			contextOf(t, s, d)
			t.Setenv("DOUBLE_FAIL", step+"=0x70000003")
			e, err := s.open(d, gpualloc.Env{})
			if err == nil {
				_, err = e.Export(context.Background(), e.Granule(), "")
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			if !errors.Is(err, OutOfDeviceMemory) {
				t.Errorf("got %v, want OutOfDeviceMemory", err)
			}
			log.Balanced(t, pairs)
		})
	}
}

func TestTooLarge(t *testing.T) {
	double(t, "ze", "DOUBLE_ZE_MAX=0x100000")
	a, err := gpualloc.Open("ze:1", gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	_, err = a.Alloc(context.Background(), 1<<20+1, gpualloc.Options{})
	if !errors.Is(err, failure.ErrLimit) {
		t.Errorf("got %v, want ErrLimit", err)
	}
	doubles.Words(t, err, "largest allocation", "ask for at most 1048576 bytes", "Options.SegmentSize")
}
