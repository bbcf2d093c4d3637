// SPDX-License-Identifier: Apache-2.0

package dmabuf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/guarded"
)

// Mapping is a dma-buf's memory in this process's address space. It keeps the
// memory after the Buf is closed. Its methods may be called from several
// goroutines at once.
type Mapping struct {
	buf  *Buf // a duplicate, for the access brackets
	prot Access
	off  int64

	mu     sync.RWMutex // read-held while the memory is in use
	pages  []byte       // the whole mapping, for munmap; nil once closed
	window []byte       // the bytes of it that Map was called for
}

// Map maps length bytes of the buffer from off on. Both are in bytes and need no
// alignment. The mapping takes address space from the buffer's beginning on,
// whatever off is. A Write mapping can be read, too. If the exporter has no mmap,
// as CUDA's has none, Map returns ENODEV, ENOTTY or EINVAL, by exporter. The
// caller closes the Mapping.
//
// Errors: [failure.ErrRange] when off and length do not fit the buffer, EACCES when
// the descriptor was exported read-only and prot has Write.
func (b *Buf) Map(off, length int64, prot Access) (*Mapping, error) {
	device := b.fd.String()
	if _, err := prot.flags("mmap", device); err != nil {
		return nil, err
	}
	if off < 0 || length <= 0 || off > b.size || length > b.size-off {
		return nil, &failure.Error{
			Op: "mmap", Device: device,
			Detail: fmt.Sprintf("offset %#x, length %#x of a buffer of %#x bytes", off, length, b.size),
			Remedy: "map at least one byte, inside the buffer",
			Err:    failure.ErrRange,
		}
	}
	pageProt := unix.PROT_READ
	if prot&Write != 0 {
		pageProt |= unix.PROT_WRITE
	}
	dup, err := b.Dup()
	if err != nil {
		return nil, err
	}
	m := &Mapping{buf: dup, prot: prot, off: off}
	// Never from an offset: drm_gem_shmem_fault (Linux 6.1 and 6.12 at least)
	// counts pages from the mapping's start and ignores its offset, so that an
	// mmap of vgem or virtio-gpu memory from the second page shows the first.
	err = dup.Do(func(raw int) (err error) {
		m.pages, err = unix.Mmap(raw, 0, int(off+length), pageProt, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		_ = dup.Close()
		return nil, mapError(device, off, length, prot, err)
	}
	m.window = m.pages[off : off+length : off+length]
	return m, nil
}

func mapError(device string, off, length int64, prot Access, err error) error {
	e := &failure.Error{
		Op: "mmap", Device: device,
		Detail: fmt.Sprintf("offset %#x, length %#x, %v", off, length, prot),
		Err:    err,
	}
	switch {
	case errors.Is(err, unix.EACCES):
		e.Remedy = "export the buffer read-write (O_RDWR, DRM_RDWR)"
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOTTY):
		e.Remedy = "this exporter has no mmap: copy through its own interface"
	case errors.Is(err, unix.ENOMEM):
		e.Remedy = "raise RLIMIT_AS or vm.max_map_count, or map less"
	}
	return e
}

// Bytes is the mapped memory itself; nil after Close. The program must not use it
// after Close. The caller brackets its accesses with [Buf.BeginAccess] and
// [Buf.EndAccess]. If the device was removed, an access to Bytes kills the
// process; ReadAt and WriteAt return an error then.
func (m *Mapping) Bytes() []byte {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.window
}

// Len is the mapped length in bytes.
func (m *Mapping) Len() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return int64(len(m.window))
}

// ReadAt copies bytes out of the mapping from off on, counted from the mapping's
// start, between a BeginAccess and an EndAccess. It follows io.ReaderAt.
func (m *Mapping) ReadAt(p []byte, off int64) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.pages == nil {
		return 0, os.ErrClosed
	}
	if off < 0 {
		return 0, m.rangeError("read", p, off)
	}
	if off >= int64(len(m.window)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := min(len(p), len(m.window)-int(off))
	if err := m.copy(Read, p[:n], m.window[off:][:n]); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt copies p into the mapping from off on, between a BeginAccess and an
// EndAccess. If p does not fit, it returns [failure.ErrRange] and writes nothing; for a
// Mapping without Write it returns EACCES.
func (m *Mapping) WriteAt(p []byte, off int64) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.pages == nil {
		return 0, os.ErrClosed
	}
	if m.prot&Write == 0 {
		return 0, &failure.Error{
			Op: "write", Device: m.buf.fd.String(),
			Detail: "the mapping is for reading only",
			Remedy: "map with Write or ReadWrite",
			Err:    unix.EACCES,
		}
	}
	if off < 0 || off > int64(len(m.window)) || len(p) > len(m.window)-int(off) {
		return 0, m.rangeError("write", p, off)
	}
	if err := m.copy(Write, m.window[off:][:len(p)], p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (m *Mapping) rangeError(op string, p []byte, off int64) error {
	return &failure.Error{
		Op: op, Device: m.buf.fd.String(),
		Detail: fmt.Sprintf("offset %#x, length %#x of a mapping of %#x bytes", off, len(p), len(m.window)),
		Err:    failure.ErrRange,
	}
}

// copy brackets one copy. The end bracket is sent even if the copy faulted.
func (m *Mapping) copy(a Access, dst, src []byte) error {
	if len(dst) == 0 {
		return nil
	}
	if err := m.buf.BeginAccess(a); err != nil {
		return err
	}
	err := guarded.Copy(dst, src)
	if err != nil {
		err = &failure.Error{
			Op: a.String(), Device: m.buf.fd.String(),
			Detail: fmt.Sprintf("page fault in a copy of %d bytes", len(dst)),
			Remedy: "the memory behind the mapping is gone: was the device removed?",
			Err:    err,
		}
	}
	return errors.Join(err, m.buf.EndAccess(a))
}

// Close unmaps the memory. It waits for running ReadAt and WriteAt. A second
// Close does nothing.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages == nil {
		return nil
	}
	err := unix.Munmap(m.pages)
	m.pages, m.window = nil, nil
	return errors.Join(err, m.buf.Close())
}
