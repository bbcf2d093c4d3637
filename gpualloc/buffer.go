// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/bytesize"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// view is the CPU's way to a buffer's bytes. Exporters with mmap share
// mappedView; a runtime without it (CUDA) copies through its own calls.
type view interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// Buffer is allocated memory, exported as one or more dma-bufs. Its methods
// may be called from several goroutines at once.
type Buffer struct {
	desc      *Description // its allocator's, which never changes
	requested int64

	mu     sync.RWMutex // read-held while the memory is in use
	view   view         // nil until first use
	holds  int
	closed bool
	pieces
}

// Segments lists the buffer's parts in order. The Bufs belong to the Buffer:
// the caller must not close them.
func (b *Buffer) Segments() []Segment { return append([]Segment(nil), b.segments...) }

// Size is the allocated size of all segments in bytes: Requested, rounded up to
// a size that the exporter supports.
func (b *Buffer) Size() int64 { return b.size }

// Requested is the size in bytes that the caller of Alloc asked for.
func (b *Buffer) Requested() int64 { return b.requested }

// Kind is the memory that the allocator asked for.
func (b *Buffer) Kind() Kind { return b.desc.Kind }

// PCI is the PCI function whose driver exports the buffer; false if the
// exporter is no PCI device.
func (b *Buffer) PCI() (pciaddr.Addr, bool) {
	if b.desc.PCI == nil {
		return pciaddr.Addr{}, false
	}
	return *b.desc.PCI, true
}

// Spec is the allocator's spec.
func (b *Buffer) Spec() string { return b.desc.Spec }

// Exporter is the name of the dma-buf's exporter in fdinfo: "drm", "udmabuf".
func (b *Buffer) Exporter() string { return b.desc.Exporter }

// Driver is the kernel driver behind the exporter: "vgem".
func (b *Buffer) Driver() string { return b.desc.Driver }

// Device is the node that the memory was allocated on: "/dev/udmabuf".
func (b *Buffer) Device() string { return b.desc.Device }

// String names the buffer for messages.
func (b *Buffer) String() string {
	return fmt.Sprintf("%s of %s", bytesize.Format(b.size), b.desc.Spec)
}

// use runs fn on the view, which it opens at first use.
func (b *Buffer) use(fn func(view) (int, error)) (int, error) {
	b.mu.RLock()
	v := b.view
	if v != nil || b.closed {
		defer b.mu.RUnlock()
		if b.closed {
			return 0, os.ErrClosed
		}
		return fn(v)
	}
	b.mu.RUnlock()
	if err := b.openView(); err != nil {
		return 0, err
	}
	return b.use(fn)
}

func (b *Buffer) openView() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.openViewLocked()
}

func (b *Buffer) openViewLocked() error {
	if b.closed {
		return os.ErrClosed
	}
	if b.view != nil {
		return nil
	}
	v, err := openMapped(b.segments)
	if err == nil {
		b.view = v
	}
	return err
}

// ReadAt copies bytes out of the buffer by CPU. It follows io.ReaderAt; off
// counts from the first segment's start.
func (b *Buffer) ReadAt(p []byte, off int64) (int, error) {
	return b.use(func(v view) (int, error) { return v.ReadAt(p, off) })
}

// WriteAt copies p into the buffer by CPU. If p does not fit, it returns
// failure.ErrRange and writes nothing.
func (b *Buffer) WriteAt(p []byte, off int64) (int, error) {
	return b.use(func(v view) (int, error) { return v.WriteAt(p, off) })
}

// FlushWrites waits until work that the GPU is already running sees the writes
// of other devices, such as RDMA NICs, that have completed. It makes the
// vendor's own call. If the vendor has none, it returns errors.ErrUnsupported,
// whether or not the GPU needs such a call; gpurdma.Buffer.Flush also covers
// these GPUs.
func (b *Buffer) FlushWrites() error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return os.ErrClosed
	}
	for _, s := range b.segments {
		if s.flush != nil {
			return s.flush()
		}
	}
	return &failure.Error{Op: "flush writes", Device: b.desc.Device, Detail: "the allocator has no call for it", Err: errors.ErrUnsupported}
}

// Hold keeps the buffer: until release is called, Close answers
// failure.ErrInUse. It implements dmabuf.Holder.
func (b *Buffer) Hold() (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, os.ErrClosed
	}
	b.holds++
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.holds--
	}), nil
}

// CloseFDs closes the exported descriptors and keeps the memory: MRs that were
// registered with them stay valid, and ReadAt and WriteAt still work. A second
// call does nothing.
func (b *Buffer) CloseFDs() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return os.ErrClosed
	}
	// The view needs the descriptors, so it is made while they are there.
	if err := b.openViewLocked(); err != nil {
		return err
	}
	return b.closeFDs()
}

// Close unmaps the buffer, closes its descriptors and frees the memory. While
// the buffer is held, Close answers failure.ErrInUse and frees nothing. If the
// driver refuses to free the memory, Close returns its error, once. The mapping
// and the descriptors are gone then, and the driver frees the memory when this
// process ends. A second Close does nothing.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	if b.holds > 0 {
		return &failure.Error{
			Op: "free", Device: b.desc.Device,
			Detail: fmt.Sprintf("%s is held %d times", b, b.holds),
			Remedy: "close the MRs on it first",
			Err:    failure.ErrInUse,
		}
	}
	b.closed = true
	var unmap error
	if b.view != nil {
		unmap = b.view.Close()
		b.view = nil
	}
	return errors.Join(unmap, b.free())
}
