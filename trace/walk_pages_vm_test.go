// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/uverbs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/placement"
	"github.com/gpurdma/gpurdma/trace/internal/abi"
)

// The walk against what the kernel says of the pages (/proc/self/pagemap): lists
// of one page an entry, in orders that make long ranges, short ones and none, and
// of lengths around a block, a chunk with its chain, and what a record keeps.
func TestVMWalkPages(t *testing.T) {
	testenv.VM(t)
	if !testenv.AtLeast(t, "6.12") {
		t.Skip("the testbed's kernels have udmabuf from 6.12 on")
	}
	const most = 400
	page := os.Getpagesize()
	m, err := dmabuf.NewMemfd("walk", int64(most*page))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	frames := pageFrames(t, m, most)
	tr, d := shared(t), openDevice(t)

	for _, order := range []struct {
		name string
		page func(i, n int) int // the i-th of n
	}{
		{"as they are", func(i, _ int) int { return i }},
		{"backwards", func(i, n int) int { return n - 1 - i }},
		{"every third", func(i, _ int) int { return i * 3 % (most - 1) }}, // and again from the first
		{"by fives, backwards", func(i, n int) int { return (n-1-i)/5*5 + i%5 }},
		{"one again and again", func(int, int) int { return 7 }},
	} {
		for _, n := range []int{1, 2, 7, 8, 9, 31, 32, 33, 127, 128, 129, 300} {
			pages := make([]int, n)
			for i := range pages {
				pages[i] = min(order.page(i, n), most-1)
			}
			b := listOf(t, m, pages, page)
			mr := registerBuf(t, d, b, uint64(n*page))
			r := await(t, tr, "registered", onBuffer(b.Inode(), Registered)).Record
			var want []placement.Range
			for _, p := range pages {
				at := frames[p] * uint64(page)
				if k := len(want) - 1; k >= 0 && want[k].End() == at {
					want[k].Size += uint64(page)
				} else {
					want = append(want, placement.Range{Start: at, Size: uint64(page)})
				}
			}
			in := r.Placement.Evidence
			// 7.2 makes one entry of pages that are neighbours.
			if r.Entries != n && r.Entries != len(want) || r.Ranges != len(want) || !slices.Equal(in.DMA.Ranges, want[:min(len(want), abi.MaxRanges)]) {
				t.Errorf("%d pages %s: %d entries in %d ranges %v, want %d: %v", n, order.name, r.Entries, r.Ranges, in.DMA.Ranges, len(want), want)
			}
			if size := uint64(n * page); in.DMA.Bytes != size || in.Pages.Bytes != size || in.DMA.Unread {
				t.Errorf("%d pages %s: %d bytes by DMA address, %d by page, unread: %v", n, order.name, in.DMA.Bytes, in.Pages.Bytes, in.DMA.Unread)
			}
			if err := d.DestroyMR(mr.Handle); err != nil {
				t.Error(err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// pageFrames are the numbers of a memfd's page frames.
func pageFrames(t *testing.T, m *dmabuf.Memfd, n int) []uint64 {
	t.Helper()
	const present, mask = 1 << 63, 1<<55 - 1 // Documentation/admin-guide/mm/pagemap.rst
	var data []byte
	err := m.Do(func(fd int) (err error) {
		data, err = unix.Mmap(fd, 0, int(m.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(data) //nolint:errcheck // of a test
	maps, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	raw := make([]byte, n*8)
	if _, err := maps.ReadAt(raw, int64(mappedAt(t, "/memfd:walk"))/int64(os.Getpagesize())*8); err != nil {
		t.Fatal(err)
	}
	frames := make([]uint64, n)
	for i := range frames {
		e := binary.NativeEndian.Uint64(raw[i*8:])
		if e&present == 0 || e&mask == 0 {
			t.Fatalf("page %d: %#x in /proc/self/pagemap", i, e)
		}
		frames[i] = e & mask
	}
	return frames
}

// mappedAt is where this process has a file mapped.
func mappedAt(t *testing.T, name string) (at uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, name) {
			if _, err := fmt.Sscanf(line, "%x-", &at); err != nil {
				t.Fatal(err)
			}
			return at
		}
	}
	t.Fatalf("%s is not mapped", name)
	return 0
}

// listOf is a udmabuf of a memfd's pages.
func listOf(t *testing.T, m *dmabuf.Memfd, pages []int, page int) (b *dmabuf.Buf) {
	t.Helper()
	err := m.Do(func(fd int) (err error) {
		var ranges []dmabuf.Range
		for _, p := range pages {
			ranges = append(ranges, dmabuf.Range{FD: fd, Offset: int64(p * page), Size: int64(page)})
		}
		b, err = dmabuf.CreateUDMABuf(ranges)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func registerBuf(t *testing.T, d device, b *dmabuf.Buf, length uint64) (mr uverbs.MR) {
	t.Helper()
	err := b.Do(func(fd int) (err error) {
		mr, err = d.RegDMABufMR(uverbs.DMABufMR{PD: d.pd, FD: int32(fd), Access: accessAll, Length: length})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mr
}
