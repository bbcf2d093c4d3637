// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Four GPUs on machine fabric: the last personality repeats.
const oneOfEach = "personality=amdgpu,xe,i915"

// softGPU finds a software GPU by whose ioctls it speaks.
func softGPU(t *testing.T, all []testenv.SoftGPU, personality string) testenv.SoftGPU {
	t.Helper()
	i := slices.IndexFunc(all, func(g testenv.SoftGPU) bool { return g.Personality == personality })
	if i < 0 {
		t.Fatalf("no %s among %+v", personality, all)
	}
	return all[i]
}

// largest is what one buffer in VRAM can have.
func largest(g testenv.SoftGPU) int64 {
	if g.Personality == "amdgpu" { // less than all
		return g.VRAM - int64(os.Getpagesize())
	}
	return g.VRAM
}

// onGPU opens an allocator of a GPU; place ends its spec.
func onGPU(t *testing.T, g testenv.SoftGPU, place string) Allocator {
	t.Helper()
	a, err := Open("drm:"+g.PCI+place, Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func inodeOf(t *testing.T, b *Buffer, segment int) uint64 {
	t.Helper()
	info, err := b.Segments()[segment].Buf.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info.Inode
}

// places are what a driver's buffers can be asked to be in.
var places = map[string][]string{
	"amdgpu": {"", "/vram", "/system"},
	"i915":   {"", "/vram", "/system"},
	"xe":     {"", "/vram", "/vram-only", "/system"},
}

func eachPlace(t *testing.T, run func(t *testing.T, g testenv.SoftGPU, place string)) {
	gpus := testenv.SoftGPUs(t, oneOfEach)
	for personality, suffixes := range places {
		for _, place := range suffixes {
			t.Run(personality+place, func(t *testing.T) { run(t, softGPU(t, gpus, personality), place) })
		}
	}
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUSpecs(t *testing.T) {
	gpus := testenv.SoftGPUs(t, oneOfEach)
	amd, i915 := softGPU(t, gpus, "amdgpu"), softGPU(t, gpus, "i915")
	all := Discover(Env{})
	for _, g := range gpus {
		for _, place := range places[g.Personality] {
			spec := "drm:" + g.PCI + place
			i := slices.IndexFunc(all, func(d Description) bool { return slices.Contains(d.Aliases, spec) })
			if i < 0 {
				t.Errorf("%s is missing in %+v", spec, all)
				continue
			}
			d := all[i]
			kind, limit := KindVRAM, largest(g)
			if place == "/system" {
				kind, limit = KindSystem, 0
			}
			if !d.Available || d.Driver != "softgpu" || d.Class != g.Personality || d.Kind != kind || d.MaxSize != limit || d.PCI == nil || d.PCI.String() != g.PCI {
				t.Errorf("%s: %+v", spec, d)
			}
		}
	}
	for _, c := range []struct {
		spec  string
		want  error // nil: opens the GPU
		words string
		gpu   testenv.SoftGPU
	}{
		{"drm:amdgpu", nil, "", amd},
		{"drm:amdgpu/system", nil, "", amd},
		{"drm:" + amd.PCI, nil, "", amd},
		{"drm:i915", ErrAmbiguousSpec, i915.PCI, amd},
		{"drm:softgpu", ErrAmbiguousSpec, "(softgpu, " + amd.PCI + ")", amd},
		{"drm:softgpu/system", ErrAmbiguousSpec, "/system", amd},
		{"drm:nouveau", ErrUnknownSpec, "use auto, or one of", amd},
		{"drm:amdgpu/vram-only", ErrUnknownSpec, `drm:amdgpu has no memory called "vram-only": no such allocator; use one of: drm:`, amd}, // amdgpu always moves
		{"drm:amdgpu/gtt", ErrUnknownSpec, `no memory called "gtt"`, amd},
		{"drm:0000:ff:1f.7", ErrUnknownSpec, "one of", amd},
	} {
		a, err := Open(c.spec, Env{})
		if !errors.Is(err, c.want) || c.want != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v; want %v with %q", c.spec, err, c.want, c.words)
		}
		if err != nil {
			continue
		}
		if addr := a.Describe().PCI; addr == nil || addr.String() != c.gpu.PCI {
			t.Errorf("%s opened the GPU at %v", c.spec, addr)
		}
		a.Close()
	}
}

// "auto" takes the GPU with the most VRAM that is free, and says so.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUAuto(t *testing.T) {
	gpus := testenv.SoftGPUs(t, oneOfEach)
	big := gpus[0]
	for range 2 {
		auto, err := Open("auto", Env{})
		if err != nil {
			t.Fatal(err)
		}
		d := auto.Describe()
		auto.Close()
		if d.PCI == nil || d.Kind != KindVRAM || !strings.Contains(d.Why, "of it free") || !strings.Contains(d.Why, "the most of 4 such GPUs") {
			t.Fatalf("auto: %+v", d)
		}
		i := slices.IndexFunc(gpus, func(g testenv.SoftGPU) bool { return g.PCI == d.PCI.String() })
		if i < 0 || gpus[i].VRAM < big.VRAM || i == 0 && big.VRAM == 0 {
			t.Errorf("auto takes %v of %+v", d.PCI, gpus)
		}
		// With that one nearly full, it is another.
		b := alloc(t, onGPU(t, gpus[i], ""), gpus[i].VRAM-1<<20, Options{})
		if _, err := b.WriteAt([]byte{1}, 0); err != nil { // i915 gives memory with the first use
			t.Fatal(err)
		}
		if big = gpus[i]; i == 0 {
			big = gpus[2]
		} else {
			big = gpus[1]
		}
	}
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUNoPermission(t *testing.T) {
	testenv.SoftGPUs(t, oneOfEach)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			done <- e
			return
		}
		_, err := Open("drm:amdgpu", Env{})
		done <- err
	}()
	err := <-done
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "run as root") {
		t.Errorf("drm:amdgpu as nobody: %v", err)
	}
}

// Written and read through the node where the buffer was asked to be, and
// nothing of that moves it.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUBuffers(t *testing.T) {
	eachPlace(t, func(t *testing.T, g testenv.SoftGPU, place string) {
		fds, bufs := live(t)
		a := onGPU(t, g, place)
		kind, at := KindVRAM, "vram"
		if place == "/system" {
			kind, at = KindSystem, "system"
		}
		for _, opt := range []Options{{Name: "one"}, {SegmentSize: 1 << 18}} {
			b := alloc(t, a, 1<<20-5, opt)
			if addr, ok := b.PCI(); !ok || addr.String() != g.PCI || b.Kind() != kind || b.Driver() != "softgpu" || b.Size() != 1<<20 {
				t.Errorf("%v on %v, %v by %s, %d bytes", b, addr, b.Kind(), b.Driver(), b.Size())
			}
			zero, data, got := make([]byte, b.Size()), make([]byte, b.Size()), make([]byte, b.Size())
			if _, err := b.ReadAt(got, 0); err != nil || !bytes.Equal(got, zero) {
				t.Errorf("fresh memory is not zero: %v", err)
			}
			rand.Read(data)
			if _, err := b.WriteAt(data, 0); err != nil {
				t.Fatal(err)
			}
			if opt.Name == "" {
				if err := b.CloseFDs(); err != nil {
					t.Fatal(err)
				}
			} else if where := g.Place(t, inodeOf(t, b, 0)); where != at {
				t.Errorf("in %q, want %q", where, at)
			}
			if _, err := b.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
				t.Errorf("other bytes, %v", err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if f, n := live(t); f != fds || n != bufs {
			t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, n)
		}
		if left := g.Buffers(t); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

// The view follows a buffer that is moved, also after the descriptors and the
// allocator are closed.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUMoves(t *testing.T) {
	gpus := testenv.SoftGPUs(t, oneOfEach)
	for personality := range places {
		t.Run(personality, func(t *testing.T) {
			g := softGPU(t, gpus, personality)
			a := onGPU(t, g, "")
			b := alloc(t, a, 1<<20, Options{})
			inode := inodeOf(t, b, 0)
			data, got := make([]byte, b.Size()), make([]byte, b.Size())
			for _, step := range []struct {
				file, place string
				before      func() error
			}{
				{"evict", "system", func() error { return nil }},
				{"restore", "vram", b.CloseFDs},
				{"evict", "system", a.Close},
			} {
				rand.Read(data)
				if _, err := b.WriteAt(data, 0); err != nil {
					t.Fatal(err)
				}
				if err := step.before(); err != nil {
					t.Fatal(err)
				}
				id := fmt.Sprint(inode)
				if step.file != "evict" || step.place != "system" || g.Place(t, inode) == "" {
					id = "all" // without descriptors the dma-buf is gone, and its number
				}
				g.Set(t, step.file, id)
				if _, err := b.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
					t.Errorf("after %s: other bytes, %v", step.file, err)
				}
				if where := g.Buffers(t)[0]["place"]; where != step.place {
					t.Errorf("%s: in %q", step.file, where)
				}
			}
		})
	}
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUTooLarge(t *testing.T) {
	gpus := testenv.SoftGPUs(t, oneOfEach)
	for personality := range places {
		t.Run(personality, func(t *testing.T) {
			g := softGPU(t, gpus, personality)
			a := onGPU(t, g, "")
			_, err := a.Alloc(t.Context(), g.VRAM+1, Options{})
			refusedAs(t, "beyond VRAM", err, "VRAM of "+g.PCI)
			forced := alloc(t, a, g.VRAM+1, Options{Force: true})
			if _, err := forced.WriteAt([]byte{1}, g.VRAM); err != nil {
				t.Error(err)
			}
			if where := g.Place(t, inodeOf(t, forced, 0)); where != "system" {
				t.Errorf("more than VRAM is in %q", where)
			}
			if err := forced.Close(); err != nil {
				t.Error(err)
			}
			_, err = a.Alloc(t.Context(), 2*g.VRAM, Options{SegmentSize: 1 << 20})
			refusedAs(t, "beyond VRAM in pieces", err, "the free part of VRAM of "+g.PCI)
			b := alloc(t, a, g.VRAM/2, Options{})
			if _, err := b.WriteAt(make([]byte, b.Size()), 0); err != nil {
				t.Fatal(err)
			}
			_, err = a.Alloc(t.Context(), g.VRAM/2+1, Options{})
			refusedAs(t, "more than is free", err, "force it")
			if left := len(g.Buffers(t)); left != 1 {
				t.Errorf("%d buffers, one is alive", left)
			}
			// Forced, the driver makes room, and moves what was there.
			c := alloc(t, a, g.VRAM/2+1<<16, Options{Force: true})
			if _, err := c.WriteAt([]byte{1}, c.Size()-1); err != nil {
				t.Error(err)
			}
			at := []string{g.Place(t, inodeOf(t, b, 0)), g.Place(t, inodeOf(t, c, 0))}
			slices.Sort(at)
			if !slices.Equal(at, []string{"system", "vram"}) {
				t.Errorf("the two are in %v", at)
			}
		})
	}
	// Nothing can be moved out for a buffer that must be in VRAM, nor it.
	t.Run("xe/vram-only", func(t *testing.T) {
		g := softGPU(t, gpus, "xe")
		a := onGPU(t, g, "/vram-only")
		alloc(t, a, g.VRAM/2, Options{})
		_, err := a.Alloc(t.Context(), g.VRAM/2+1<<16, Options{Force: true})
		if !errors.Is(err, unix.ENOMEM) || errors.Is(err, failure.ErrLimit) {
			t.Errorf("the driver's own answer: %v, want ENOMEM", err)
		}
		if _, err := a.Alloc(t.Context(), g.VRAM+1, Options{Force: true}); !errors.Is(err, unix.E2BIG) {
			t.Errorf("the driver's own answer: %v, want E2BIG", err)
		}
	})
}

func refusedAs(t *testing.T, what string, err error, words string) {
	t.Helper()
	if !errors.Is(err, failure.ErrLimit) || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %v; want ErrLimit with %q", what, err, words)
	}
}

// No NIC reaches VRAM that only the GPU reaches.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUSmallBAR(t *testing.T) {
	gpus := testenv.SoftGPUs(t, oneOfEach, "vram_mb=256")
	for personality := range places {
		t.Run(personality, func(t *testing.T) {
			g := softGPU(t, gpus, personality)
			a := onGPU(t, g, "")
			if d := a.Describe(); d.MaxSize != g.VRAM {
				t.Errorf("buffers of %d bytes, where the BAR has %d", d.MaxSize, g.VRAM)
			}
			_, err := a.Alloc(t.Context(), g.VRAM+1, Options{})
			refusedAs(t, "beyond the BAR", err, "resizable BAR")
			b := alloc(t, a, g.VRAM, Options{})
			if _, err := b.WriteAt([]byte{1}, b.Size()-1); err != nil {
				t.Fatal(err)
			}
			if where := g.Place(t, inodeOf(t, b, 0)); where != "vram" {
				t.Errorf("in %q: beyond the BAR, or elsewhere", where)
			}
		})
	}
}

// The dma-buf of a closed Buffer lives on with another descriptor.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPULiveExport(t *testing.T) {
	eachPlace(t, func(t *testing.T, g testenv.SoftGPU, place string) {
		b := alloc(t, onGPU(t, g, place), 1<<16, Options{})
		dup, err := b.Segments()[0].Buf.Dup()
		if err != nil {
			t.Fatal(err)
		}
		defer dup.Close()
		if _, err := b.WriteAt([]byte("alive"), 7); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		m, err := dup.Map(0, dup.Size(), dmabuf.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		got := make([]byte, 5)
		if _, err := m.ReadAt(got, 7); err != nil || string(got) != "alive" {
			t.Errorf("%q, %v", got, err)
		}
		if left := g.Buffers(t); len(left) != 1 || left[0]["handles"] != "0" {
			t.Errorf("%v; want one without a handle", left)
		}
	})
}

//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUUnplugged(t *testing.T) {
	gpus := testenv.SoftGPUs(t, oneOfEach)
	for personality := range places {
		t.Run(personality, func(t *testing.T) {
			g := softGPU(t, gpus, personality)
			fds, bufs := live(t)
			a := onGPU(t, g, "")
			b := alloc(t, a, 1<<20, Options{})
			unread := alloc(t, a, 1<<16, Options{})
			if _, err := b.WriteAt([]byte{1}, 0); err != nil {
				t.Fatal(err)
			}
			g.Set(t, "unplug", "now")
			defer g.Rescan(t)
			g.WaitGone(t)
			if _, err := b.ReadAt(make([]byte, 10), 0); !errors.Is(err, unix.EFAULT) || !strings.Contains(err.Error(), "was the device removed?") {
				t.Errorf("read: %v", err)
			}
			if _, err := unread.WriteAt([]byte{1}, 0); !errors.Is(err, unix.ENODEV) {
				t.Errorf("first write: %v", err)
			}
			if _, err := a.Alloc(t.Context(), 1<<16, Options{}); !errors.Is(err, unix.ENODEV) {
				t.Errorf("alloc: %v", err)
			}
			if err := errors.Join(b.Close(), unread.Close(), a.Close()); err != nil {
				t.Error(err)
			}
			if f, n := live(t); f != fds || n != bufs {
				t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, n)
			}
		})
	}
}

// A driver that fails half-way leaves nothing.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2 6.12
func TestVMGPUFailures(t *testing.T) {
	gpus := testenv.SoftGPUs(t, oneOfEach)
	for personality := range places {
		t.Run(personality, func(t *testing.T) {
			g := softGPU(t, gpus, personality)
			a := onGPU(t, g, "")
			for _, op := range []string{"create", "export"} {
				g.Set(t, "fail/"+op, fmt.Sprint(int(unix.EIO)))
				_, err := a.Alloc(t.Context(), 1<<20, Options{SegmentSize: 1 << 18})
				g.Set(t, "fail/"+op, "0")
				if !errors.Is(err, unix.EIO) {
					t.Errorf("%s: %v, want EIO", op, err)
				}
				if left := g.Buffers(t); len(left) != 0 {
					t.Errorf("%s: left over: %v", op, left)
				}
			}
			alloc(t, a, 1<<20, Options{})
		})
	}
}
