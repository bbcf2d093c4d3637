// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/internal/fd"
	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// Heaps lists the names of the dma-heaps ("system", "reserved"). dev is the
// root of /dev, "" for /dev. On a kernel without heaps the list is empty, and
// there is no error.
func Heaps(dev string) ([]string, error) {
	if dev == "" {
		dev = "/dev"
	}
	entries, err := os.ReadDir(filepath.Join(dev, "dma_heap"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Heap is an open dma-heap. Its methods may be called from several goroutines at
// once.
type Heap struct {
	path string
	fd   *fd.FD
	t    ioctl.Transport
}

// OpenHeap opens a heap by its name under /dev/dma_heap, or by the path of its
// node. The caller closes the Heap. A heap that is not there is fs.ErrNotExist. Needs Linux 5.6 and CONFIG_DMABUF_HEAPS_SYSTEM for "system".
func OpenHeap(name string) (*Heap, error) {
	path := name
	if !strings.Contains(name, "/") {
		path = filepath.Join("/dev/dma_heap", name)
	}
	// dma_heap_open ignores the mode; the node's permissions are for reading.
	f, err := fd.Open(path, unix.O_RDONLY)
	if err != nil {
		return nil, openError(path, err, "use one that Heaps lists; the kernel needs CONFIG_DMABUF_HEAPS and the heap's own option")
	}
	return &Heap{path: path, fd: f, t: kernel}, nil
}

// Alloc allocates size bytes of zeroed memory as a read-write dma-buf, which
// the caller closes. The heap rounds the size up to pages, and some heaps round
// further: [Buf.Size] has the result. A size larger than the machine's memory
// is refused with [failure.ErrLimit]. The system heap allocates until the kernel runs
// the OOM killer, so that the caller compares a smaller size with MemAvailable,
// as package gpualloc does. Source: DMA_HEAP_IOCTL_ALLOC in
// include/uapi/linux/dma-heap.h.
func (h *Heap) Alloc(size int64) (*Buf, error) {
	const op = "DMA_HEAP_IOCTL_ALLOC"
	if size <= 0 {
		return nil, &failure.Error{Op: op, Device: h.path, Detail: fmt.Sprintf("size %d", size), Remedy: "ask for at least one byte", Err: failure.ErrRange}
	}
	if err := refuseImpossible(op, h.path, size, false); err != nil {
		return nil, err
	}
	raw := -1
	err := h.fd.Do(func(n int) (err error) {
		raw, err = heapAlloc(h.t, n, size)
		return err
	})
	if err != nil {
		e := &failure.Error{Op: op, Device: h.path, Detail: bytesize.Format(size), Err: err}
		switch {
		case errors.Is(err, unix.ENOMEM):
			e.Remedy = "ask for less memory"
		case errors.Is(err, unix.ENOTTY):
			e.Detail = "not a dma-heap"
		}
		return nil, e
	}
	b, err := NewExported(raw)
	if err != nil {
		_ = unix.Close(raw)
		return nil, err
	}
	return b, nil
}

// Close closes the heap; its buffers stay valid. A second Close does nothing.
func (h *Heap) Close() error { return h.fd.Close() }
