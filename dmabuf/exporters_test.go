// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/ioctl/ioctltest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMemfd(t *testing.T) {
	page := int64(os.Getpagesize())
	m, err := NewMemfd("test", 3*page)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	err = m.Do(func(fd int) error {
		seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
		if err != nil || seals&unix.F_SEAL_SHRINK == 0 || seals&unix.F_SEAL_WRITE != 0 {
			t.Errorf("seals %#x, %v", seals, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Size != 3*page || st.Blocks*512 != 3*page {
			t.Errorf("%d bytes, %d of them allocated; want all %d", st.Size, st.Blocks*512, 3*page)
		}
		if err := unix.Ftruncate(fd, page); !errors.Is(err, unix.EPERM) {
			t.Errorf("shrinking: %v, want EPERM", err)
		}
		return nil
	})
	if err != nil || m.Size() != 3*page {
		t.Error(m.Size(), err)
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if err := m.Do(func(int) error { return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Do after Close: %v", err)
	}
	for _, size := range []int64{0, -1, 1, page + 1} {
		if _, err := NewMemfd("test", size); !errors.Is(err, failure.ErrRange) {
			t.Errorf("NewMemfd(%d): %v, want failure.ErrRange", size, err)
		}
	}
	if _, err := NewMemfd("test", 1<<55); !errors.Is(err, failure.ErrLimit) {
		t.Errorf("NewMemfd(32 PiB): %v, want failure.ErrLimit", err)
	}
	if _, err := NewMemfd(string(make([]byte, 300)), page); !errors.Is(err, unix.EINVAL) {
		t.Errorf("NewMemfd with a bad name: %v", err)
	}
}

const udmabufSys = `
-- module/udmabuf/parameters/list_limit --
4
-- module/udmabuf/parameters/size_limit_mb --
1
`

func TestUDMABufLimits(t *testing.T) {
	entries, bytes, err := UDMABufLimits(tree(t, udmabufSys))
	if entries != 4 || bytes != 1<<20 || err != nil {
		t.Errorf("%d, %d, %v", entries, bytes, err)
	}
	for name, files := range map[string]string{
		"missing":  "",
		"negative": "-- module/udmabuf/parameters/list_limit --\n-4\n-- module/udmabuf/parameters/size_limit_mb --\n1\n",
		"huge":     "-- module/udmabuf/parameters/list_limit --\n4\n-- module/udmabuf/parameters/size_limit_mb --\n9223372036854775807\n",
		"text":     "-- module/udmabuf/parameters/list_limit --\nfour\n-- module/udmabuf/parameters/size_limit_mb --\n1\n",
	} {
		if _, _, err := UDMABufLimits(tree(t, files)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// play answers a UDMABUF_CREATE in the kernel's place.
func play(req uint32, fd int, e unix.Errno, check func(unsafe.Pointer)) UDMABufOption {
	return func(c *udmabufConfig) {
		c.device = "/dev/null"
		c.create = func(_ int, got uint32, arg unsafe.Pointer) (int, error) {
			if got != req {
				return -1, unix.EPROTO
			}
			if check != nil {
				check(arg)
			}
			if e != 0 {
				return -1, e
			}
			return fd, nil
		}
	}
}

func TestUDMABufArguments(t *testing.T) {
	page := int64(os.Getpagesize())
	before := testenv.Descriptors(t)
	answer := func() int { // not a dma-buf: CreateUDMABuf must refuse and close it
		raw, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	_, err := CreateUDMABuf([]Range{{FD: 5, Offset: page, Size: 2 * page}}, play(reqUDMABufCreate, answer(), 0, func(arg unsafe.Pointer) {
		got := *(*abiUDMABufCreate)(arg)
		if want := (abiUDMABufCreate{Memfd: 5, Flags: udmabufCloexec, Offset: uint64(page), Size: uint64(2 * page)}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}))
	if !errors.Is(err, ErrNotDMABuf) {
		t.Error(err)
	}
	ranges := []Range{{5, 0, page}, {6, 2 * page, 3 * page}, {5, page, page}}
	_, err = CreateUDMABuf(ranges, play(reqUDMABufCreateList, answer(), 0, func(arg unsafe.Pointer) {
		head := *(*abiUDMABufList)(arg)
		items := unsafe.Slice((*abiUDMABufItem)(unsafe.Add(arg, unsafe.Sizeof(head))), 3)
		if head.Count != 3 || head.Flags != udmabufCloexec {
			t.Errorf("head %+v", head)
		}
		for i, r := range ranges {
			if want := (abiUDMABufItem{Memfd: uint32(r.FD), Offset: uint64(r.Offset), Size: uint64(r.Size)}); items[i] != want {
				t.Errorf("item %d: %+v, want %+v", i, items[i], want)
			}
		}
	}))
	if !errors.Is(err, ErrNotDMABuf) {
		t.Error(err)
	}
	if now := testenv.Descriptors(t); now != before {
		t.Errorf("%d descriptors before, %d after", before, now)
	}
}

func TestUDMABufExplains(t *testing.T) {
	page := int64(os.Getpagesize())
	sys := tree(t, udmabufSys)
	limits := func(c *udmabufConfig) { c.sys = sys }
	m, err := NewMemfd("test", page)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	raw := -1
	_ = m.Do(func(fd int) error { raw = fd; return nil })
	kinds := openKinds(t)
	for _, c := range []struct {
		name   string
		ranges []Range
		errno  unix.Errno
		words  []string
	}{
		{"size", []Range{{raw, 0, 1<<20 + page}}, unix.EINVAL, []string{"UDMABUF_CREATE on", "limit of 1 MiB", "size_limit_mb"}},
		{"count", slices.Repeat([]Range{{raw, 0, page}}, 5), unix.EINVAL, []string{"UDMABUF_CREATE_LIST on", "limit of 4 ranges", "list_limit"}},
		{"end", []Range{{raw, page, page}}, unix.EINVAL, []string{"the memfd's size"}},
		{"unsealed", []Range{{kinds["memfd"], 0, page}}, unix.EINVAL, []string{"seal"}},
		{"eventfd", []Range{{kinds["eventfd"], 0, page}}, unix.EBADFD, []string{"not a memfd"}},
		{"closed", []Range{{1 << 20, 0, page}}, unix.EBADFD, []string{"not open"}},
		{"no reason found", []Range{{raw, 0, page}}, unix.EINVAL, []string{"EINVAL"}},
		{"memory", []Range{{raw, 0, page}}, unix.ENOMEM, []string{"ENOMEM"}},
	} {
		req := reqUDMABufCreate
		if len(c.ranges) > 1 {
			req = reqUDMABufCreateList
		}
		_, err := CreateUDMABuf(c.ranges, play(req, -1, c.errno, nil), limits)
		if !errors.Is(err, c.errno) {
			t.Errorf("%s: %v, want %v", c.name, err, c.errno)
		}
		contains(t, err, c.words...)
	}
	_, err = CreateUDMABuf([]Range{{raw, 0, page}}, UDMABufDevice(filepath.Join(sys, "none")))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no device: %v", err)
	}
	contains(t, err, "modprobe udmabuf")
}

func TestHeapErrors(t *testing.T) {
	dev := tree(t, "-- dma_heap/system --\n-- dma_heap/reserved --\n")
	names, err := Heaps(dev)
	if err != nil || !slices.Equal(names, []string{"reserved", "system"}) {
		t.Errorf("%v, %v", names, err)
	}
	if names, err := Heaps(filepath.Join(dev, "none")); names != nil || err != nil {
		t.Errorf("no heaps: %v, %v", names, err)
	}
	if _, err := OpenHeap(filepath.Join(dev, "dma_heap/none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing heap: %v", err)
	}
	h, err := OpenHeap(filepath.Join(dev, "dma_heap/system"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	before := testenv.Descriptors(t)
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	h.t = ioctltest.NewScript(
		ioctltest.Step{Req: reqHeapAlloc, Errno: unix.ENOMEM, Fill: func(arg unsafe.Pointer) {
			got := *(*abiHeapAlloc)(arg)
			if want := (abiHeapAlloc{Len: 5, FDFlags: unix.O_RDWR | unix.O_CLOEXEC}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}},
		ioctltest.Step{Req: reqHeapAlloc, Errno: unix.ENOTTY},
		ioctltest.Step{Req: reqHeapAlloc, Fill: func(arg unsafe.Pointer) { (*abiHeapAlloc)(arg).FD = uint32(fd) }},
	)
	for _, want := range []error{unix.ENOMEM, errors.ErrUnsupported, ErrNotDMABuf} {
		if _, err := h.Alloc(5); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if now := testenv.Descriptors(t); now != before {
		t.Errorf("%d descriptors before, %d after", before, now)
	}
}
