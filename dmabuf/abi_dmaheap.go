// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"structs"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/linux/dma-heap.h.

// abiHeapAlloc is struct dma_heap_allocation_data.
type abiHeapAlloc struct {
	_         structs.HostLayout
	Len       uint64
	FD        uint32
	FDFlags   uint32
	HeapFlags uint64
}

const heapMagic = 'H' // DMA_HEAP_IOC_MAGIC

var reqHeapAlloc = ioctl.IOWR(heapMagic, 0, uint32(unsafe.Sizeof(abiHeapAlloc{}))) // DMA_HEAP_IOCTL_ALLOC

func heapAlloc(t ioctl.Transport, fd int, size int64) (int, error) {
	arg := abiHeapAlloc{Len: uint64(size), FDFlags: unix.O_RDWR | unix.O_CLOEXEC}
	err := t.Ioctl(fd, reqHeapAlloc, unsafe.Pointer(&arg))
	return int(arg.FD), err
}
