// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package cuda

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/gpualloc/internal/doubles"
)

const huge = 2 << 20

// retained returns a device's primary context until the test ends.
func retained(t *testing.T, s *session, ordinal int) contextHandle {
	t.Helper()
	ctx, r := s.drv.retain(device(ordinal))
	if r != Success {
		t.Fatal(r)
	}
	t.Cleanup(func() {
		if r := s.drv.release(device(ordinal)); r != Success {
			t.Error(r)
		}
	})
	return ctx
}

// allocated is memory that the test owns, as an application's would be.
func allocated(t *testing.T, s *session, ctx contextHandle, size uint64) pointer {
	t.Helper()
	p, r := s.drv.alloc(ctx, size)
	if r != Success {
		t.Fatal(r)
	}
	t.Cleanup(func() { s.drv.free(ctx, p) })
	return p
}

// mapping is 2 MiB of the virtual memory API.
type mapping struct {
	ordinal int // of the GPU that has the memory
	noRDMA  bool
	hole    bool // nothing is mapped
}

// mapped is mappings next to each other, which the context's GPU may use.
func mapped(t *testing.T, s *session, ctx contextHandle, ordinal int, mappings ...mapping) pointer {
	t.Helper()
	size := uint64(len(mappings)) * huge
	p, r := s.drv.reserve(ctx, size)
	if r != Success {
		t.Fatal(r)
	}
	t.Cleanup(func() {
		if r := s.drv.addressFree(ctx, p, size); r != Success {
			t.Error(r)
		}
	})
	for i, m := range mappings {
		if m.hole {
			continue
		}
		at := p + pointer(i)*huge
		h, r := s.drv.create(ctx, huge, device(m.ordinal), !m.noRDMA)
		if r == Success {
			r = s.drv.mapHandle(ctx, at, huge, h)
		}
		if r == Success {
			r = s.drv.releaseHandle(h)
		}
		if r == Success {
			r = s.drv.setAccess(ctx, at, huge, device(ordinal))
		}
		if r != Success {
			t.Fatal(r)
		}
		t.Cleanup(func() {
			if r := s.drv.unmap(ctx, at, huge); r != Success {
				t.Error(r)
			}
		})
	}
	return p
}

func TestCopies(t *testing.T) {
	double(t, "cuda")
	s := started(t)
	ctx := retained(t, s, 0)
	p := allocated(t, s, ctx, 100_000)
	v := s.view(ctx, "test", p, 100_000, always)
	if r := s.drv.fill(ctx, p, 0xa5, 100_000); r != Success {
		t.Fatal(r)
	}
	want := bytes.Repeat([]byte{0xa5}, 100_000)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		off := rng.IntN(100_000)
		p := make([]byte, rng.IntN(100_000-off))
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		copy(want[off:], p)
		if n, err := v.WriteAt(p, int64(off)); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	got := make([]byte, 100_001)
	if n, err := v.ReadAt(got, 0); n != 100_000 || !errors.Is(err, io.EOF) {
		t.Fatal(n, err)
	}
	if !bytes.Equal(got[:100_000], want) {
		t.Error("what was read is not what was written")
	}
	for _, off := range []int64{-1, 100_001, 1 << 62} {
		if _, err := v.ReadAt(got, off); !errors.Is(err, failure.ErrRange) {
			t.Errorf("read at %d: got %v, want ErrRange", off, err)
		}
		if _, err := v.WriteAt(got, off); !errors.Is(err, failure.ErrRange) {
			t.Errorf("write at %d: got %v, want ErrRange", off, err)
		}
	}
	t.Setenv("DOUBLE_FAIL", "cuMemcpyDtoH_v2=700,cuMemcpyHtoD_v2=709")
	if _, err := v.ReadAt(got, 0); !errors.Is(err, IllegalAddress) {
		t.Errorf("got %v, want IllegalAddress", err)
	}
	if _, err := v.WriteAt(got[:1], 0); !errors.Is(err, ContextIsDestroyed) {
		t.Errorf("got %v, want ContextIsDestroyed", err)
	}
}

// Memory that its application frees is not there, other memory at the same address is not it, and
// no copy is made of either.
func TestPresence(t *testing.T) {
	double(t, "cuda")
	s := started(t)
	ctx := retained(t, s, 0)
	p := mapped(t, s, ctx, 0, mapping{hole: true})
	put := func() {
		t.Helper()
		h, r := s.drv.create(ctx, huge, 0, true)
		for _, step := range []func() Result{
			func() Result { return s.drv.mapHandle(ctx, p, huge, h) },
			func() Result { return s.drv.releaseHandle(h) },
			func() Result { return s.drv.setAccess(ctx, p, huge, 0) },
		} {
			if r == Success {
				r = step()
			}
		}
		if r != Success {
			t.Fatal(r)
		}
	}
	put()
	numbered := s.presence("cuda:0", p)
	t.Setenv("DOUBLE_FAIL", "cuPointerGetAttribute=801")
	unnumbered := s.presence("cuda:0", p) // of a driver that numbers no memory
	t.Setenv("DOUBLE_FAIL", "")
	for _, there := range []func() error{numbered, unnumbered} {
		if _, err := s.view(ctx, "cuda:0", p, huge, there).WriteAt([]byte{1}, 0); err != nil {
			t.Error(err)
		}
	}
	log := doubles.Log(t)
	refused := func(there func() error) {
		t.Helper()
		v := s.view(ctx, "cuda:0", p, huge, there)
		if _, err := v.ReadAt(make([]byte, 1), 0); !errors.Is(err, InvalidValue) || !strings.Contains(err.Error(), "the context was destroyed") {
			t.Errorf("read: %v", err)
		}
		if _, err := v.WriteAt([]byte{1}, 0); !errors.Is(err, InvalidValue) {
			t.Errorf("written: %v", err)
		}
	}
	if r := s.drv.unmap(ctx, p, huge); r != Success {
		t.Fatal(r)
	}
	refused(numbered)
	refused(unnumbered)
	put()
	refused(numbered)
	if log.Count(t, "cuMemcpyDtoH_v2")+log.Count(t, "cuMemcpyHtoD_v2") > 0 {
		t.Error("a copy was made")
	}
	if r := s.drv.unmap(ctx, p, huge); r != Success {
		t.Fatal(r)
	}
}

// Goroutines move between threads, and a thread has one current context: each
// call must find its own device's.
func TestContextsOfManyGoroutines(t *testing.T) {
	double(t, "cuda", "DOUBLE_DEVICES=4")
	log := doubles.Log(t)
	s := started(t)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			ordinal := g % 4
			ctx, r := s.drv.retain(device(ordinal))
			if r != Success {
				t.Error(r)
				return
			}
			for range 50 {
				p, r := s.drv.alloc(ctx, 4096)
				if r != Success {
					t.Error(r)
					break
				}
				if on, r := s.drv.pointerUint(pointerDeviceOrdinal, p); r != Success || int(on) != ordinal {
					t.Errorf("allocated on device %d, %v, want %d", on, r, ordinal)
				}
				if r := s.drv.fill(ctx, p, byte(g), 4096); r != Success {
					t.Error(r)
				}
				if r := s.drv.free(ctx, p); r != Success {
					t.Error(r)
				}
			}
			if r := s.drv.release(device(ordinal)); r != Success {
				t.Error(r)
			}
		})
	}
	wg.Wait()
	log.Balanced(t, pairs)
}

// gpualloc exports its allocations for ordinary registrations: without the PCIe mapping,
// also where the driver has it. Where the kernel has no exporter the double exports
// nothing, but it gets the same call.
func TestMappingOfAllocations(t *testing.T) {
	for _, vmm := range []bool{false, true} {
		double(t, "cuda", "DOUBLE_CUDA_PCIE=1")
		s := started(t)
		d, err := s.describe(0, gpualloc.Env{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.open(d, gpualloc.Env{}, vmm)
		if err != nil {
			t.Fatal(err)
		}
		log := doubles.Log(t)
		x, err := e.Export(context.Background(), e.Granule(), "")
		switch {
		case err == nil:
			if err := errors.Join(x.Buf.Close(), x.Free()); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, NotSupported):
			t.Error(err)
		}
		if calls := log.Args(t, exportFunction); len(calls) != 1 || !strings.HasSuffix(calls[0], " 1 0") { // a dma-buf, no flags
			t.Errorf("vmm %v: %q", vmm, calls)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
