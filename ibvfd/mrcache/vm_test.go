// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package mrcache_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/mrcache"
	"github.com/gpurdma/gpurdma/internal/rdmanl"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

const nic = "rxe0" // the testbed's

func openPD(t *testing.T) *ibvfd.PD {
	t.Helper()
	testenv.VM(t)
	c, err := ibvfd.Open(nic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, c) })
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, pd) })
	return pd
}

func closed(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("close %T: %v", c, err)
		}
	}
}

func alloc(t *testing.T, spec string, size int64) *dmabuf.Buf {
	t.Helper()
	a, err := gpualloc.Open(spec, gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	buf, err := a.Alloc(t.Context(), size, gpualloc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, buf) })
	b, err := buf.Segments()[0].Buf.Dup()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, b) })
	return b
}

// registered are the NIC's MRs in the kernel.
func registered(t *testing.T) int {
	t.Helper()
	mrs, err := rdmanl.MRs(nic)
	if err != nil {
		t.Fatal(err)
	}
	return len(mrs)
}

func get(t *testing.T, c *mrcache.Cache, pd *ibvfd.PD, buf *dmabuf.Buf, r mrcache.Range) mrcache.Ref {
	t.Helper()
	ref, err := c.Get(pd, buf, r)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// 10,000 ranges through a cache of 16: each is registered and evicted, and
// nothing is left, neither MRs, descriptors, nor memory that grows with them.
func TestVMRegisterAndEvict(t *testing.T) {
	pd := openPD(t)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		const entries = 16
		page := uint64(os.Getpagesize())
		buf := alloc(t, x.Spec, int64(64*page))
		before := registered(t)
		c := mrcache.New(mrcache.Config{MaxEntries: entries})
		n := testenv.Count(10000)
		if testenv.Slow() > 1 && strings.HasPrefix(x.Spec, "heap:") {
			// A heap syncs what all its importers have mapped, and DMA-API debugging
			// takes a second to find that one of them registered a part.
			n = 2 * entries
		}
		i := 0 // goes on, so that nothing is asked for again that is there still
		cycle := func(n int) {
			for range n {
				ref := get(t, c, pd, buf, mrcache.Range{Offset: uint64(i%64) * page, Length: page, Access: ibvfd.AccessLocalWrite})
				ref.Release()
				i++
			}
		}
		cycle(n / 10)
		fds, kernel, heap := testenv.Descriptors(t), testenv.KernelMemory(t), testenv.GoMemory()
		cycle(n)
		if s := c.Stats(); s.Hits != 0 || s.Entries != entries || s.Used != 0 || s.Evictions != s.Misses-entries {
			t.Errorf("%+v", s)
		}
		if got := registered(t) - before; got != entries {
			t.Errorf("the kernel has %d regions more, want %d", got, entries)
		}
		if got := testenv.Descriptors(t); got != fds {
			t.Errorf("%d descriptors, were %d", got, fds)
		}
		if testenv.Slow() == 1 { // KASAN does not give back what was freed for a while
			most := int64(n * 32)
			var more, own int64
			for range 100 { // the kernel frees some of it later
				if more, own = testenv.KernelMemory(t)-kernel, testenv.GoMemory()-heap; more < most && own < most {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if more >= most || own >= most {
				t.Errorf("after %d regions the kernel has %d bytes more, we have %d", n, more, own)
			}
		}
		closed(t, c)
		if got := registered(t); got != before {
			t.Errorf("the kernel has %d regions, had %d", got, before)
		}
	})
}

// A descriptor's number is given out again at once; the cache must not take the
// buffer that has it now for the one that had it.
func TestVMReusedDescriptor(t *testing.T) {
	pd := openPD(t)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		c := mrcache.New(mrcache.Config{})
		defer closed(t, c)
		size := uint64(os.Getpagesize())
		number := func(b *dmabuf.Buf) (fd int) {
			if err := b.Do(func(n int) error { fd = n; return nil }); err != nil {
				t.Fatal(err)
			}
			return fd
		}
		r := mrcache.Range{Length: size, Access: ibvfd.AccessLocalWrite}
		whole, other := alloc(t, x.Spec, int64(size)), alloc(t, x.Spec, int64(size))
		first, err := whole.Dup()
		if err != nil {
			t.Fatal(err)
		}
		fd := number(first)
		ref := get(t, c, pd, first, r)
		key := ref.LKey()
		ref.Release()
		closed(t, first)
		if _, err := c.Get(pd, first, r); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a closed Buf: %v", err)
		}
		// The lowest free number: the one just closed.
		second, err := other.Dup()
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, second)
		if n := number(second); n != fd {
			t.Skipf("descriptor %d was not given out again, but %d", fd, n)
		}
		ref = get(t, c, pd, second, r)
		if ref.LKey() == key {
			t.Error("the cache took another buffer for the one whose descriptor had the number before")
		}
		ref.Release()
		// And the first buffer hits by any descriptor of it.
		ref = get(t, c, pd, whole, r)
		if ref.LKey() != key {
			t.Error("another descriptor of the same buffer does not hit")
		}
		ref.Release()
	})
}

// An inode number is not given out again, not even when its buffer is gone.
func TestVMInodesDoNotRepeat(t *testing.T) {
	testenv.VM(t)
	a, err := gpualloc.Open("drm:vgem", gpualloc.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, a)
	seen := map[uint64]bool{}
	for range testenv.Count(100) {
		buf, err := a.Alloc(t.Context(), int64(os.Getpagesize()), gpualloc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		inode := buf.Segments()[0].Buf.Inode()
		if seen[inode] {
			t.Fatalf("inode %d twice", inode)
		}
		seen[inode] = true
		closed(t, buf)
	}
}

// Invalidate deregisters what nobody uses, and the rest with its last use.
func TestVMInvalidate(t *testing.T) {
	pd := openPD(t)
	c := mrcache.New(mrcache.Config{})
	defer closed(t, c)
	page := uint64(os.Getpagesize())
	buf := alloc(t, "drm:vgem", int64(4*page))
	before := registered(t)
	used := get(t, c, pd, buf, mrcache.Range{Length: page})
	unused := get(t, c, pd, buf, mrcache.Range{Offset: page, Length: page})
	unused.Release()
	if n := c.Invalidate(buf.Inode()); n != 1 || !used.Dead() {
		t.Errorf("%d still used, dead is %v", n, used.Dead())
	}
	if got := registered(t) - before; got != 1 {
		t.Errorf("%d regions in the kernel, want the used one", got)
	}
	again := get(t, c, pd, buf, mrcache.Range{Length: page})
	if again.LKey() == used.LKey() {
		t.Error("a dead region was returned")
	}
	used.Release()
	again.Release()
	if err := c.Drop(pd); err != nil {
		t.Error(err)
	}
	if got := registered(t); got != before {
		t.Errorf("%d regions in the kernel, were %d", got, before)
	}
}

// Many goroutines on few regions of one real NIC.
func TestVMConcurrentCache(t *testing.T) {
	pd := openPD(t)
	c := mrcache.New(mrcache.Config{MaxEntries: 12})
	defer closed(t, c)
	page := uint64(os.Getpagesize())
	bufs := []*dmabuf.Buf{alloc(t, "drm:vgem", int64(16*page)), alloc(t, "drm:vgem", int64(16*page))}
	before := registered(t)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range testenv.Count(300) {
				buf := bufs[(w+i)%2]
				r := mrcache.Range{Offset: uint64((w*7+i)%8) * page, Length: page * uint64(1+i%3), Access: ibvfd.AccessLocalWrite}
				ref, err := c.Get(pd, buf, r)
				if err != nil {
					t.Error(err)
					return
				}
				s := ref.MR().State()
				if s.PD != pd || s.Access != r.Access || s.IOVA > ref.Addr() || s.IOVA+s.Length < ref.Addr()+r.Length || ref.Addr() != r.Offset || s.LKey != ref.LKey() {
					t.Errorf("%+v for %+v", s, r)
				}
				if i%50 == 0 {
					c.Invalidate(buf.Inode())
				}
				ref.Release()
			}
		})
	}
	all.Wait()
	if err := c.Flush(); err != nil {
		t.Error(err)
	}
	if got := registered(t); got != before {
		t.Errorf("%d regions in the kernel, were %d", got, before)
	}
}
