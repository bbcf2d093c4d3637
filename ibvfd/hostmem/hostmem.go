// SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// failed is the module's error with this room's usual parts.
func failed(op, device string, err error) *failure.Error {
	return &failure.Error{Op: op, Device: device, Err: err}
}

// Buf is host memory for RDMA: anonymous mapped pages that the garbage
// collector does not know, so that the NIC may write to them at any time. Its
// methods may be called from several goroutines at once.
type Buf struct {
	mu     sync.Mutex
	mem    []byte // whole pages; nil once closed
	size   int
	holds  int
	closed bool
	free   func() // gives adopted memory back to its allocator; nil: Close unmaps mem
}

// Alloc maps size bytes of zeroed memory, rounded up to whole pages, page
// aligned. The pages are kept from child processes (MADV_DONTFORK): a fork
// would otherwise move the parent's pages away from the NIC on kernels before
// 5.12.
func Alloc(size int) (*Buf, error) {
	page := os.Getpagesize()
	if size <= 0 || size > int(^uint(0)>>1)-page {
		e := failed("mmap", "host memory", unix.EINVAL)
		e.Detail = fmt.Sprintf("size %d", size)
		e.Remedy = "ask for 1 byte or more"
		return nil, e
	}
	mem, err := unix.Mmap(-1, 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		e := failed("mmap", "host memory", err)
		e.Detail = fmt.Sprintf("%d bytes", size)
		return nil, e
	}
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		_ = unix.Munmap(mem)
		return nil, failed("madvise(MADV_DONTFORK)", "host memory", err)
	}
	return &Buf{mem: mem, size: size}, nil
}

// Adopt makes a Buf of the first size bytes of mem, which another allocator has made. Close
// calls free, which gives mem back to that allocator. mem must be zeroed and should be whole
// pages: these are kept from child processes, as Alloc's are, until Close. After an error the
// caller still owns mem.
func Adopt(mem []byte, size int, free func()) (*Buf, error) {
	page := uint64(os.Getpagesize())
	if AddrOf(mem)%page == 0 && uint64(len(mem))%page == 0 {
		if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
			return nil, failed("madvise(MADV_DONTFORK)", "host memory", err)
		}
		give := free
		free = func() {
			_ = unix.Madvise(mem, unix.MADV_DOFORK)
			give()
		}
	}
	return &Buf{mem: mem, size: size, free: free}, nil
}

// Bytes returns the memory, nil after Close. The program must not use it after Close.
func (h *Buf) Bytes() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mem == nil {
		return nil
	}
	return h.mem[:h.size:h.size]
}

// Hold keeps the memory mapped until release. It implements [dmabuf.Holder].
func (h *Buf) Hold() (release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, os.ErrClosed
	}
	h.holds++
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.holds--
	}), nil
}

// Close unmaps the memory. While an MR holds it the answer is
// [failure.ErrInUse]; closing again does nothing.
func (h *Buf) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	if h.holds > 0 {
		e := failed("munmap", "host memory", failure.ErrInUse)
		e.Detail = fmt.Sprintf("%d MR(s) on it", h.holds)
		e.Remedy = "close them first"
		return e
	}
	if h.free != nil {
		h.free()
	} else if err := unix.Munmap(h.mem); err != nil {
		return failed("munmap", "host memory", err)
	}
	h.closed, h.mem = true, nil
	return nil
}
