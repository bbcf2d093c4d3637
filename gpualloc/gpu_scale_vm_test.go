// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Buffers come and go while the allocator is closed under them. Others have several
// processors on this machine, too.
//
//testbed:machine pair
//testbed:kernel 7.2 6.12
func TestVMConcurrentGPU(t *testing.T) {
	g := softGPU(t, testenv.SoftGPUs(t, oneOfEach), "amdgpu")
	fds, bufs := live(t)
	a := onGPU(t, g, "")
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range testenv.Count(20) {
				b, err := a.Alloc(t.Context(), 1<<16, Options{SegmentSize: 1 << 14})
				if errors.Is(err, os.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mark, got := []byte{byte(worker), byte(i)}, make([]byte, 2)
				_, e1 := b.WriteAt(mark, 1<<14-1)
				if worker == 0 && i == 10 {
					if err := a.Close(); err != nil {
						t.Error(err)
					}
				}
				_, e2 := b.ReadAt(got, 1<<14-1)
				if err := errors.Join(e1, e2, b.Close()); err != nil || !bytes.Equal(got, mark) {
					t.Errorf("worker %d, round %d: %v, read %v", worker, i, err, got)
				}
			}
		})
	}
	wg.Wait()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if f, n := live(t); f != fds || n != bufs || len(g.Buffers(t)) != 0 {
		t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, n)
	}
}

// 10,000 buffers of one page of VRAM, each exported, and one of nearly all of an
// 8 GiB BAR, which is sparse, imported too.
//
//testbed:machine rootports+vram=8G
//testbed:kernel 7.2 6.12
func TestVMGPUScale(t *testing.T) {
	for personality := range places {
		t.Run(personality, func(t *testing.T) {
			g := testenv.SoftGPUs(t, "personality="+personality)[0]
			if g.VRAM != 8<<30 {
				t.Fatalf("%d bytes of VRAM", g.VRAM)
			}
			a := onGPU(t, g, "")
			t.Run("huge", func(t *testing.T) { huge(t, g, a) })
			if personality == "amdgpu" { // its unit is a page; those of others take as long and show no more
				t.Run("huge imported", func(t *testing.T) { hugeImported(t, g, a) })
				t.Run("many", func(t *testing.T) { many(t, g, a) })
			}
		})
	}
}

func huge(t *testing.T, g testenv.SoftGPU, a Allocator) {
	b := alloc(t, a, largest(g), Options{})
	for _, off := range []int64{0, 4<<30 - 3, largest(g) - 7} { // across what 32 bits count, too
		want, got := []byte(fmt.Sprintf("%07x", off&0xfffffff)), make([]byte, 7)
		if _, err := b.WriteAt(want, off); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ReadAt(got, off); err != nil || !bytes.Equal(got, want) {
			t.Errorf("at %#x: %q, %v", off, got, err)
		}
	}
	if where := g.Place(t, inodeOf(t, b, 0)); where != "vram" || b.Size() != largest(g) {
		t.Errorf("%d bytes in %q", b.Size(), where)
	}
	_, err := a.Alloc(t.Context(), 1<<20, Options{})
	refusedAs(t, "more than nothing", err, "the free part of VRAM")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// hugeImported maps what is longer than a segment, whose length has 32 bits and which
// amdgpu and nvidia cut at 2 GiB, for a device.
func hugeImported(t *testing.T, g testenv.SoftGPU, a Allocator) {
	// Clearing and wiping would fill all 8 GiB.
	parameter(t, "wipe", "N")
	parameter(t, "topology_gate", "N") // the engine has a root port of its own
	imp := testenv.TestImporter(t)
	dir, err := filepath.EvalSymlinks("/run/gpurdma/pci/edu0")
	if err != nil {
		t.Fatal(err)
	}
	edu := filepath.Base(dir)

	// All of it in system memory is more than there is. That is an errno, and no
	// process is killed for it.
	g.Set(t, "behaviour", "amdgpu")
	b := alloc(t, a, largest(g), Options{})
	at, err := attach(imp, edu, b, testenv.StaticImporter)
	if err == nil { // up to 6.12 that maps already
		_, err = at.Map()
		if err := at.Detach(); err != nil {
			t.Error(err)
		}
	}
	if !errors.Is(err, unix.ENOMEM) {
		t.Errorf("8 GiB in system memory: %v, want ENOMEM", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}

	g.Set(t, "behaviour", "nvidia")
	b = alloc(t, a, largest(g), Options{})
	if at, err = attach(imp, edu, b, testenv.DynamicImporter); err != nil {
		t.Fatal(err)
	}
	segments, err := at.Map()
	if err != nil || len(segments) != 4 {
		t.Fatalf("%d segments, %v; want 4", len(segments), err)
	}
	total := uint64(0)
	for i, s := range segments {
		if s.Addr != segments[0].Addr+total || s.Length > 2<<30 || i < 3 && s.Length != 2<<30 {
			t.Errorf("segment %d is %+v, after %#x bytes at %#x", i, s, total, segments[0].Addr)
		}
		total += s.Length
	}
	if total != uint64(b.Size()) {
		t.Errorf("%d of %d bytes are mapped", total, b.Size())
	}
	// Bytes on both sides of each cut, and the last ones.
	for _, off := range []int64{2<<30 - 100, 4<<30 - 1, 6<<30 - 255, b.Size() - 256} {
		want, got := make([]byte, 256), make([]byte, 256)
		rand.Read(want)
		if err := at.Write(want, uint64(off)); err != nil {
			t.Fatalf("DMA to %#x: %v", off, err)
		}
		if _, err := b.ReadAt(got, off); err != nil || !bytes.Equal(got, want) {
			t.Errorf("DMA to %#x went elsewhere: %v", off, err)
		}
		rand.Read(want)
		if _, err := b.WriteAt(want, off); err != nil {
			t.Fatal(err)
		}
		if err := at.Read(got, uint64(off)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("DMA from %#x came from elsewhere: %v", off, err)
		}
	}
	if err := errors.Join(at.Detach(), b.Close()); err != nil {
		t.Error(err)
	}
	if left := g.Buffers(t); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
}

// attach attaches a buffer to a device, for peer-to-peer if the kind knows that.
func attach(imp *testenv.Importer, device string, b *Buffer, kind testenv.ImporterKind) (at *testenv.Attachment, err error) {
	refusal := b.Segments()[0].Buf.Do(func(fd int) error {
		at, err = imp.Attach(device, fd, kind, kind != testenv.StaticImporter)
		return nil
	})
	return at, errors.Join(err, refusal)
}

// parameter sets one of the software GPU's, until the test is over.
func parameter(t *testing.T, name, value string) {
	t.Helper()
	file := "/sys/module/softgpu/parameters/" + name
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	put := func(text []byte) {
		if err := os.WriteFile(file, text, 0); err != nil {
			t.Error(err)
		}
	}
	put([]byte(value))
	t.Cleanup(func() { put(old) })
}

func many(t *testing.T, g testenv.SoftGPU, a Allocator) {
	n := int64(testenv.Count(10_000))
	unit := a.(*allocator).exp.granule()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	tight := unix.Rlimit{Cur: 512, Max: max(old.Max, uint64(n)+1000)}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &tight); err != nil {
		t.Fatal(err)
	}
	_, err := a.Alloc(t.Context(), n*unit, Options{SegmentSize: unit})
	refusedAs(t, "more descriptors than 512", err, "RLIMIT_NOFILE")
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: tight.Max, Max: tight.Max}); err != nil {
		t.Fatal(err)
	}
	fds, bufs := live(t)
	b, err := a.Alloc(t.Context(), n*unit, Options{SegmentSize: unit})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if f, d := live(t); len(b.Segments()) != int(n) || f != fds+int(n) || d != bufs+int(n) {
		t.Errorf("%d segments, %d more descriptors, %d more dma-bufs", len(b.Segments()), f-fds, d-bufs)
	}
	mark := make([]byte, 2*os.Getpagesize())
	rand.Read(mark)
	got := make([]byte, len(mark))
	last := b.Size() - int64(len(mark))
	if _, err := b.WriteAt(mark, last); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ReadAt(got, last); err != nil || !bytes.Equal(got, mark) {
		t.Errorf("the last bytes: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if f, d := live(t); f != fds || d != bufs || len(g.Buffers(t)) != 0 {
		t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, d)
	}
}
