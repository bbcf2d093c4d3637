// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Each refusal of udmabuf is EINVAL; the error says which it was.
func TestVMUDMABufRefusals(t *testing.T) {
	testenv.Need(t, "udmabuf", "6.12", testenv.Node("/dev/udmabuf"))
	page := int64(os.Getpagesize())
	entries, limit, err := UDMABufLimits("")
	if err != nil {
		t.Fatal(err)
	}
	fds, bufs := live(t)
	memfd := func(seals int, size int64) int {
		raw, err := unix.MemfdCreate("raw", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(raw, size); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(raw), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return raw
	}
	good, unsealed, writeSealed := memfd(unix.F_SEAL_SHRINK, 8*page), memfd(0, page), memfd(unix.F_SEAL_SHRINK|unix.F_SEAL_WRITE, page)
	huge := memfd(unix.F_SEAL_SHRINK, limit+page)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	most := "64 MiB"
	if testenv.AtLeast(t, "7.3") {
		most = "2048.0 TiB" // as many MiB as an int counts
	}
	for _, c := range []struct {
		name   string
		ranges []Range
		want   error
		words  []string
	}{
		{"none", nil, failure.ErrRange, []string{"no ranges"}},
		{"size 0", []Range{{good, 0, 0}}, failure.ErrRange, []string{"page size"}},
		{"unaligned size", []Range{{good, 0, 1}}, failure.ErrRange, []string{"page size"}},
		{"unaligned offset", []Range{{good, 1, page}}, failure.ErrRange, []string{"page size"}},
		{"overflow", []Range{{good, page, -page &^ (-1 << 63)}}, failure.ErrRange, []string{"overflow"}},
		{"past the end", []Range{{good, 4 * page, 5 * page}}, unix.EINVAL, []string{"the memfd's size"}},
		{"may shrink", []Range{{unsealed, 0, page}}, unix.EINVAL, []string{"F_SEAL_SHRINK"}},
		{"write-sealed", []Range{{writeSealed, 0, page}}, unix.EINVAL, []string{"F_SEAL_WRITE"}},
		{"too big", []Range{{huge, 0, limit + page}}, unix.EINVAL, []string{"size_limit_mb", most}},
		{"too many", slices.Repeat([]Range{{good, 0, page}}, entries+1), unix.EINVAL, []string{"list_limit", "1024"}},
		{"not a memfd", []Range{{null, 0, page}}, nil, []string{"not a memfd"}},
		{"closed", []Range{{1 << 20, 0, page}}, nil, []string{"not open"}},
		{"negative fd", []Range{{-1, 0, page}}, unix.EBADF, []string{"not open"}},
		{"second bad", []Range{{good, 0, page}, {unsealed, 0, page}}, unix.EINVAL, []string{"UDMABUF_CREATE_LIST", "range 1", "shrink"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := CreateUDMABuf(c.ranges)
			if err == nil {
				b.Close()
			}
			if c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			contains(t, err, c.words...)
		})
	}
	// The most that is allowed works.
	list, err := CreateUDMABuf(slices.Repeat([]Range{{good, 0, page}, {good, 4 * page, page}}, entries/2))
	if err != nil {
		t.Fatal(err)
	}
	if list.Size() != int64(entries)*page {
		t.Errorf("size %d, want %d pages", list.Size(), entries)
	}
	list.Close()
	for _, raw := range []int{good, unsealed, writeSealed, huge, null} {
		unix.Close(raw)
	}
	if f, b := live(t); f != fds || b != bufs {
		t.Errorf("%d descriptors and %d dma-bufs before, %d and %d after", fds, bufs, f, b)
	}
}

// The ranges appear in the order given.
func TestVMUDMABufOrder(t *testing.T) {
	testenv.Need(t, "udmabuf", "6.12", testenv.Node("/dev/udmabuf"))
	page := int64(os.Getpagesize())
	m, err := NewMemfd("order", 4*page)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var b *Buf
	err = m.Do(func(fd int) (err error) {
		for i := range 4 {
			if _, err := unix.Pwrite(fd, []byte{byte('a' + i)}, int64(i)*page); err != nil {
				return err
			}
		}
		b, err = CreateUDMABuf([]Range{{fd, 3 * page, page}, {fd, 0, 2 * page}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	view, err := b.Map(0, b.Size(), Read)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	got := []byte{view.Bytes()[0], view.Bytes()[page], view.Bytes()[2*page]}
	if string(got) != "dab" {
		t.Errorf("pages %q, want \"dab\"", got)
	}
}

func TestVMHeap(t *testing.T) {
	testenv.Need(t, "dma-heap", "6.12", testenv.Node("/dev/dma_heap/system"))
	names, err := Heaps("")
	if err != nil || !slices.Contains(names, "system") {
		t.Fatalf("Heaps = %v, %v", names, err)
	}
	h, err := OpenHeap("/dev/dma_heap/system")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, size := range []int64{0, -1} {
		if _, err := h.Alloc(size); !errors.Is(err, failure.ErrRange) {
			t.Errorf("Alloc(%d): %v, want failure.ErrRange", size, err)
		}
	}
	b, err := h.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.Size() != int64(os.Getpagesize()) {
		t.Errorf("1 byte became %d", b.Size())
	}
	_, err = h.Alloc(1 << 50)
	if !errors.Is(err, failure.ErrLimit) {
		t.Errorf("Alloc(1024 TiB): %v, want failure.ErrLimit", err)
	}
	contains(t, err, "DMA_HEAP_IOCTL_ALLOC", "1024 TiB")
	_, err = NewMemfd("huge", 1<<50)
	if !errors.Is(err, failure.ErrLimit) {
		t.Errorf("NewMemfd(1024 TiB): %v, want failure.ErrLimit", err)
	}
	_, err = OpenHeap("none")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenHeap(none): %v", err)
	}
	null, err := OpenHeap("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	_, err = null.Alloc(1)
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Alloc on /dev/null: %v", err)
	}
	h.Close()
	if _, err := h.Alloc(1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
}

// Even where the administrator wants huge pages for all shared memory, a Memfd
// has ordinary ones: see NewMemfd.
func TestVMMemfdIsNotHuge(t *testing.T) {
	testenv.VM(t)
	const knob = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
	if _, err := os.Stat(knob); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the kernel is built without CONFIG_TRANSPARENT_HUGEPAGE")
	}
	if err := os.WriteFile(knob, []byte("always"), 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(knob, []byte("never"), 0); err != nil {
			t.Error(err)
		}
	}()
	huge := func() string {
		t.Helper()
		data, err := os.ReadFile("/proc/meminfo")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			if rest, ok := bytes.CutPrefix(line, []byte("ShmemHugePages:")); ok {
				return string(bytes.TrimSpace(rest))
			}
		}
		t.Fatal("no ShmemHugePages in meminfo")
		return ""
	}
	const size = 8 << 20
	before := huge()
	m, err := NewMemfd("plain", size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if now := huge(); now != before {
		t.Errorf("huge pages of shared memory: %s before, %s after", before, now)
	}
	// An ordinary memfd does become huge, or this test proves nothing.
	raw, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(raw)
	if err := unix.Ftruncate(raw, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(raw, make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	if now := huge(); now == before {
		t.Errorf("the other memfd is not huge either: %s", now)
	}
}
