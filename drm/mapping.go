// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/guarded"
)

// Mapping is a buffer that is mapped through its DRM node, without the dma-buf.
// It keeps the memory by itself, and shows the buffer's bytes wherever the
// driver moves them. Its methods may be called from several goroutines at once.
//
// An access to a Mapping leaves the buffer where it is, unless no CPU reaches
// that place. An access through a dma-buf, between BeginAccess and EndAccess,
// makes some drivers move the buffer to system memory first.
type Mapping struct {
	path string

	mu   sync.RWMutex // read-held while the memory is in use
	data []byte
}

// Mmap maps length bytes, for reading and writing, at an offset that MapDumb or
// a driver's MmapOffset has returned. The caller closes the Mapping.
func (d *Device) Mmap(offset uint64, length int64) (*Mapping, error) {
	detail := fmt.Sprintf("offset %#x, length %d", offset, length)
	if length <= 0 || length > math.MaxInt || offset > math.MaxInt64 {
		return nil, d.fail("mmap", detail, failure.ErrRange)
	}
	m := &Mapping{path: d.path}
	err := d.fd.Do(func(raw int) (err error) {
		m.data, err = unix.Mmap(raw, int64(offset), int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return nil, d.fail("mmap", detail, err)
	}
	return m, nil
}

// Bytes is the mapped memory; nil after Close. The program must not use it
// after Close. If the device was removed, an access to Bytes kills the process;
// ReadAt and WriteAt return an error then.
func (m *Mapping) Bytes() []byte {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.data
}

// ReadAt copies bytes out of the mapping. It follows io.ReaderAt. EFAULT means
// that the device was removed.
func (m *Mapping) ReadAt(p []byte, off int64) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case m.data == nil:
		return 0, os.ErrClosed
	case off < 0:
		return 0, m.fail("read", p, off, failure.ErrRange)
	case off >= int64(len(m.data)):
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := min(len(p), len(m.data)-int(off))
	if err := guarded.Copy(p[:n], m.data[off:]); err != nil {
		return 0, m.fail("read", p, off, err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt copies p into the mapping. If p does not fit, it returns
// failure.ErrRange and writes nothing. EFAULT means that the device was removed.
func (m *Mapping) WriteAt(p []byte, off int64) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.data == nil {
		return 0, os.ErrClosed
	}
	if off < 0 || off > int64(len(m.data)) || len(p) > len(m.data)-int(off) {
		return 0, m.fail("write", p, off, failure.ErrRange)
	}
	if err := guarded.Copy(m.data[off:], p); err != nil {
		return 0, m.fail("write", p, off, err)
	}
	return len(p), nil
}

func (m *Mapping) fail(op string, p []byte, off int64, err error) error {
	e := &failure.Error{
		Op: op, Device: m.path, Err: err,
		Detail: fmt.Sprintf("offset %#x, length %#x of a mapping of %#x bytes", off, len(p), len(m.data)),
	}
	if errors.Is(err, unix.EFAULT) {
		e.Detail = fmt.Sprintf("page fault in a copy of %d bytes", len(p))
		e.Remedy = "the memory behind the mapping is gone: was the device removed?"
	}
	return e
}

// Close unmaps the memory. It waits for running ReadAt and WriteAt. A second
// Close does nothing.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil {
		return nil
	}
	err := unix.Munmap(m.data)
	m.data = nil
	return err
}
