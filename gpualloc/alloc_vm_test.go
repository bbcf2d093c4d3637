// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func eachSpec(t *testing.T, run func(t *testing.T, a Allocator)) {
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		a, err := Open(x.Spec, Env{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(a.Close(), a.Close()); err != nil {
				t.Error(err)
			}
		}()
		run(t, a)
	})
}

func alloc(t *testing.T, a Allocator, size int64, opt Options) *Buffer {
	t.Helper()
	b, err := a.Alloc(t.Context(), size, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// live counts what must not grow.
func live(t *testing.T) (fds, bufs int) {
	t.Helper()
	list, err := dmabuf.KernelBufs("")
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Descriptors(t), len(list)
}

func TestVMDiscover(t *testing.T) {
	testenv.VM(t)
	all := Discover(Env{})
	for _, x := range testenv.Exporters() {
		i := slices.IndexFunc(all, func(d Description) bool { return d.Spec == x.Spec || slices.Contains(d.Aliases, x.Spec) })
		if i < 0 {
			t.Errorf("%s is missing in %+v", x.Spec, all)
			continue
		}
		d := all[i]
		want := x.Expected(t)
		if d.Available != want || d.Driver != x.Driver || d.Kind != KindSystem || want == (d.Why != "") {
			t.Errorf("%s: %+v; want available %v", x.Spec, d, want)
		}
		if !want && d.Remedy == "" {
			t.Errorf("%s is not there, and nothing says what to do", x.Spec)
		}
		if want && !slices.ContainsFunc(d.Limits, func(l Limit) bool { return l.Name == "MemAvailable" && l.Bytes > 0 }) {
			t.Errorf("%s: no MemAvailable in %+v", x.Spec, d.Limits)
		}
	}
}

func TestVMOpen(t *testing.T) {
	testenv.VM(t)
	auto, err := Open("auto", Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer auto.Close()
	if d := auto.Describe(); d.Why == "" || !d.Available {
		t.Errorf("auto does not say why: %+v", d)
	}
	all := Discover(Env{})
	i := slices.IndexFunc(all, func(d Description) bool { return d.Driver == "virtio_gpu" })
	if i < 0 || all[i].PCI == nil {
		t.Fatalf("no virtio-gpu with a PCI address in %+v", all)
	}
	for _, spec := range append([]string{all[i].Spec, "drm:" + all[i].PCI.String()}, all[i].Aliases...) {
		a, err := Open(spec, Env{})
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if a.Describe().Spec != all[i].Spec {
			t.Errorf("%s opened %s", spec, a.Describe().Spec)
		}
		a.Close()
	}
	_, err = Open("tpu:0", Env{})
	if !errors.Is(err, ErrUnknownSpec) || !strings.Contains(err.Error(), "virtio_gpu") {
		t.Errorf("tpu:0: %v; want ErrUnknownSpec with the choices", err)
	}
}

func TestVMAllocate(t *testing.T) {
	eachSpec(t, func(t *testing.T, a Allocator) {
		page := int64(os.Getpagesize())
		for _, size := range []int64{1, page - 1, page, page + 1, 1 << 20, 5<<20 + 12345} {
			b := alloc(t, a, size, Options{Name: "a name"})
			if b.Requested() != size || b.Size() < size || b.Size()%page != 0 || b.Size() >= size+page {
				t.Errorf("%d bytes: requested %d, got %d", size, b.Requested(), b.Size())
			}
			segs := b.Segments()
			if len(segs) != 1 || segs[0].Offset != 0 || segs[0].Size != b.Size() {
				t.Errorf("%d bytes: segments %+v", size, segs)
			}
			info, err := segs[0].Buf.Info()
			if err != nil || info.Name != "a name" || info.Exporter != b.Exporter() {
				t.Errorf("info %+v, %v; exporter %s", info, err, b.Exporter())
			}
		}
	})
}

func TestVMReadWrite(t *testing.T) {
	eachSpec(t, func(t *testing.T, a Allocator) {
		for name, opt := range map[string]Options{"one": {}, "many": {SegmentSize: 100_000}} {
			t.Run(name, func(t *testing.T) {
				b := alloc(t, a, 1<<20, opt)
				page := int64(os.Getpagesize())
				each := (100_000 + page - 1) / page * page // a segment has whole pages
				if want := map[string]int64{"one": 1, "many": (1<<20 + each - 1) / each}[name]; int64(len(b.Segments())) != want {
					t.Errorf("%d segments, want %d", len(b.Segments()), want)
				}
				want := make([]byte, b.Size())
				rand.Read(want)
				if n, err := b.WriteAt(want, 0); n != len(want) || err != nil {
					t.Fatal(n, err)
				}
				got := make([]byte, b.Size())
				if n, err := b.ReadAt(got, 0); n != len(got) || err != nil || !bytes.Equal(got, want) {
					t.Fatal("other bytes", n, err)
				}
				// Odd places, across segment ends.
				off, n := int64(99_999), 123_457
				rand.Read(want[off : off+int64(n)])
				if _, err := b.WriteAt(want[off:off+int64(n)], off); err != nil {
					t.Fatal(err)
				}
				if err := b.CloseFDs(); err != nil {
					t.Fatal(err)
				}
				if err := b.Segments()[0].Buf.SetName("x"); !errors.Is(err, os.ErrClosed) {
					t.Errorf("the descriptor is still open: %v", err)
				}
				if _, err := b.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
					t.Errorf("after CloseFDs: other bytes, %v", err)
				}
				if k, err := b.ReadAt(got, b.Size()-10); k != 10 || !errors.Is(err, io.EOF) {
					t.Errorf("ReadAt across the end: %d, %v", k, err)
				}
				if k, err := b.WriteAt(got, 1); k != 0 || !errors.Is(err, failure.ErrRange) {
					t.Errorf("WriteAt across the end: %d, %v", k, err)
				}
			})
		}
	})
}

func TestVMHold(t *testing.T) {
	eachSpec(t, func(t *testing.T, a Allocator) {
		b := alloc(t, a, 1, Options{})
		release, err := b.Hold()
		if err != nil {
			t.Fatal(err)
		}
		again, err := b.Hold()
		if err != nil {
			t.Fatal(err)
		}
		release()
		release() // counts once
		if err := b.Close(); !errors.Is(err, failure.ErrInUse) {
			t.Errorf("Close while held: %v", err)
		}
		if _, err := b.WriteAt([]byte("alive"), 0); err != nil {
			t.Errorf("the refused Close freed something: %v", err)
		}
		again()
		if err := errors.Join(b.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		if _, err := b.Hold(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Hold after Close: %v", err)
		}
		if _, err := b.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("ReadAt after Close: %v", err)
		}
		if err := b.CloseFDs(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("CloseFDs after Close: %v", err)
		}
	})
}

// A buffer outlives its allocator; a closed allocator makes no more.
func TestVMAllocatorClosed(t *testing.T) {
	eachSpec(t, func(t *testing.T, a Allocator) {
		b := alloc(t, a, 1<<16, Options{})
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.WriteAt([]byte("alive"), 3); err != nil {
			t.Errorf("after the allocator's Close: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, err := a.Alloc(t.Context(), 1, Options{}); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Alloc after Close: %v", err)
		}
	})
}

// Hundreds of lives of a buffer leave nothing behind.
//
//testbed:kernel 6.12
func TestVMNoGrowth(t *testing.T) {
	eachSpec(t, func(t *testing.T, a Allocator) {
		fds, bufs := live(t)
		for i := range 300 {
			b, err := a.Alloc(t.Context(), 1<<16, Options{Name: "cycle"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.WriteAt([]byte{byte(i)}, int64(i)); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				if err := b.CloseFDs(); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if f, b := live(t); f != fds || b != bufs {
			t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, b)
		}
	})
}

func TestVMConcurrent(t *testing.T) {
	eachSpec(t, func(t *testing.T, a Allocator) {
		fds, bufs := live(t)
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				for i := range 8 {
					b, err := a.Alloc(t.Context(), 1<<16, Options{SegmentSize: 1 << 14})
					if err != nil {
						t.Error(err)
						return
					}
					mark := []byte{byte(g), byte(i)}
					got := make([]byte, 2)
					_, e1 := b.WriteAt(mark, 1<<14-1)
					_, e2 := b.ReadAt(got, 1<<14-1)
					if err := errors.Join(e1, e2, b.Close()); err != nil || !bytes.Equal(got, mark) {
						t.Errorf("goroutine %d round %d: %v, read %v", g, i, err, got)
					}
				}
			})
		}
		wg.Wait()
		if f, b := live(t); f != fds || b != bufs {
			t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, b)
		}
	})
}

// failing lets an exporter work until it has made n segments, and then refuse
// in one of several ways.
type failing struct {
	exporter
	left int
	how  string
}

func (f *failing) export(ctx context.Context, size int64, name string) (Segment, func() error, error) {
	if f.left == 0 && f.how == "refuses" {
		return Segment{}, nil, errFake
	}
	seg, free, err := f.exporter.export(ctx, size, name)
	if f.left == 0 && err == nil {
		switch f.how {
		case "too small":
			seg.Size--
		case "outside":
			seg.Offset = 1
		case "closed":
			err = seg.Buf.Close() // SetName then fails
		}
	}
	f.left--
	return seg, free, err
}

// Whatever goes wrong half-way, nothing stays allocated.
func TestVMPartialFailure(t *testing.T) {
	eachSpec(t, func(t *testing.T, a Allocator) {
		real := a.(*allocator)
		for how, want := range map[string]error{
			"refuses": errFake, "too small": unix.EPROTO, "outside": unix.EPROTO, "closed": os.ErrClosed,
		} {
			fds, bufs := live(t)
			broken := newAllocator(Env{}, real.desc, &failing{real.exp, 2, how})
			b, err := broken.Alloc(t.Context(), 4<<16, Options{SegmentSize: 1 << 16, Name: "partial"})
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "segment 3 of 4") {
				t.Errorf("%s: %v, %v; want %v", how, b, err, want)
			}
			if f, n := live(t); f != fds || n != bufs {
				t.Errorf("%s: %d descriptors and %d dma-bufs before, %d and %d after", how, fds, bufs, f, n)
			}
		}
	})
}

// Out of descriptors in the middle: the kernel's own answer, and no leak.
func TestVMNoDescriptorLeft(t *testing.T) {
	eachSpec(t, func(t *testing.T, a Allocator) {
		fds, bufs := live(t)
		var old unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		tight := old
		tight.Cur = uint64(fds) + 4
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &tight); err != nil {
			t.Fatal(err)
		}
		// A proc tree without limits: the check beforehand knows nothing.
		blind := newAllocator(Env{Proc: "/nonexistent"}, a.Describe(), a.(*allocator).exp)
		page := int64(os.Getpagesize())
		_, err := blind.Alloc(t.Context(), 8*page, Options{SegmentSize: page})
		_, checked := a.Alloc(t.Context(), 8*page, Options{SegmentSize: page})
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("the kernel: %v, want EMFILE", err)
		}
		if !errors.Is(checked, failure.ErrLimit) {
			t.Errorf("checked beforehand: %v, want ErrLimit", checked)
		}
		if f, n := live(t); f != fds || n != bufs {
			t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, n)
		}
	})
}
