// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// flavourPages are the page sizes of Debian's builds of a kernel that the testbed boots.
var flavourPages = map[string]int{"": 4 << 10, "amd64": 4 << 10, "arm64": 4 << 10, "arm64-16k": 16 << 10}

// The rules about pages follow this kernel's page size: the smallest buffer, where a registration
// may begin, and what a refusal says.
//
//testbed:machine-arm64 switch
func TestVMPageSize(t *testing.T) {
	testenv.VM(t)
	page := os.Getpagesize()
	if want := flavourPages[os.Getenv("GPURDMA_FLAVOUR")]; page != want {
		t.Fatalf("pages of %d bytes, and the kernel was chosen for its pages of %d", page, want)
	}
	// Half a page is no memory to make a dma-buf of, and the refusal says what is.
	_, err := dmabuf.NewMemfd("half", int64(page/2))
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(page)) {
		t.Errorf("half a page: %v, want a refusal that names %d", err, page)
	}
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{SendDepth: 4})
	n := 3 * page
	host, hmr := hostMR(t, pd, n)
	testenv.EachExporter(t, func(t *testing.T, x testenv.Exporter) {
		buf := alloc(t, x.Spec, 1, gpualloc.Options{})
		if got := buf.Size(); got < 1 || segment(t, buf).Size()%int64(page) != 0 {
			t.Errorf("a buffer of 1 byte has %d, its dma-buf %d: no whole pages of %d", got, segment(t, buf).Size(), page)
		}
		buf = alloc(t, x.Spec, int64(8*page), gpualloc.Options{})
		ask := func(offset, iova int) (*ibvfd.MR, error) {
			return pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.DMABufFD, Buf: segment(t, buf), Offset: uint64(offset), Length: uint64(n),
				IOVA: 1<<40 + uint64(iova), Access: allRemote, Owner: buf})
		}
		// Offsets within a page that differ, by half a page too, which is whole pages of
		// a smaller kind where pages are large.
		for _, c := range []struct{ offset, iova int }{{page / 2, 0}, {0, page / 2}, {page + page/4, 3 * page / 4}} {
			mr, err := ask(c.offset, c.iova)
			if err == nil {
				mr.Close()
			}
			if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), fmt.Sprintf("%#x", page)) && !strings.Contains(err.Error(), strconv.Itoa(page)) {
				t.Errorf("offset %#x, IOVA %#x: %v, want EINVAL, and the page size", c.offset, c.iova, err)
			}
		}
		for _, c := range []struct{ offset, iova int }{{page, 0}, {page / 2, page/2 + 5*page}, {3*page - 1, page - 1}} {
			mr, err := ask(c.offset, c.iova)
			if err != nil {
				t.Errorf("offset %#x, IOVA %#x: %v", c.offset, c.iova, err)
				continue
			}
			fill(host.Bytes(), uint64(c.offset))
			if w := p.move(t, ibvfd.OpWrite, hmr, mr, 0, n); w.Err() != nil {
				t.Error(w.Err())
			}
			got := make([]byte, n)
			if _, err := buf.ReadAt(got, int64(c.offset)); err != nil || !bytes.Equal(got, host.Bytes()) {
				t.Errorf("offset %#x: %v, or other bytes than were written", c.offset, err)
			}
			closed(t, mr)
		}
	})
}

// Memory of huge pages, whose size follows from the page's: what one of them is on this
// kernel is registered as a whole, and written across all of its ordinary pages.
//
//testbed:machine-arm64 switch
func TestVMHugePages(t *testing.T) {
	testenv.VM(t)
	page := os.Getpagesize()
	// A table of the next level has a page of 8-byte entries.
	want := page / 8 * page
	size := hugePageSize(t)
	if size != want {
		t.Fatalf("huge pages of %d bytes, want %d with pages of %d", size, want, page)
	}
	const knob = "/proc/sys/vm/nr_hugepages"
	before, err := os.ReadFile(knob)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(knob, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(knob, before, 0); err != nil {
			t.Error(err)
		}
	})
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	pd := openPD(t)
	p := connect(t, pd, ibvfd.QPAttr{SendDepth: 4})
	mr, err := pd.RegMR(ibvfd.MRAttr{Kind: ibvfd.HostMemory, Host: mem, Length: uint64(size), Access: allRemote})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, mr)
	host, hmr := hostMR(t, pd, 2*page)
	fill(host.Bytes(), 7)
	for _, at := range []int{0, page - 1, size/2 - page, size - 2*page} {
		if c := p.move(t, ibvfd.OpWrite, hmr, mr, uint64(at), 2*page); c.Err() != nil {
			t.Fatalf("at %#x: %v", at, c.Err())
		}
		if !bytes.Equal(mem[at:at+2*page], host.Bytes()) {
			t.Errorf("at %#x: other bytes than were written", at)
		}
	}
}

// hugePageSize is the default of the kernel's huge pages.
func hugePageSize(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "Hugepagesize: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("/proc/meminfo has no Hugepagesize")
	return 0
}
