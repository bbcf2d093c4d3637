// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/ibvfd/hostmem"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Memory plays the part of a GPU's memory: the CPU accesses it by ReadAt and WriteAt, and
// devices of a network access it directly, unless it is staged. It lies outside of the Go heap,
// so that the race detector does not report what a device writes, as it does not for a NIC.
type Memory struct {
	buf    *hostmem.Buf
	pci    pciaddr.Addr
	staged bool
	only   []string

	mu      sync.Mutex
	revoked bool
}

// MemoryOptions say how memory is made. The zero value is usable.
type MemoryOptions struct {
	PCI    pciaddr.Addr // the function on which the memory lies; default 0000:03:00.0
	Staged bool         // devices cannot register it
	Only   []string     // names of the devices that can register it; nil for all
}

var errCannotRegister = errors.New("the memory cannot be registered")

// NewMemory makes size bytes of zeroed memory.
func NewMemory(size int64, opt MemoryOptions) (*Memory, error) {
	buf, err := hostmem.Alloc(int(size))
	if err != nil {
		return nil, err
	}
	if opt.PCI == (pciaddr.Addr{}) {
		opt.PCI = pciaddr.Addr{Bus: 3}
	}
	return &Memory{buf: buf, pci: opt.PCI, staged: opt.Staged, only: opt.Only}, nil
}

func (m *Memory) memory() *Memory { return m }

// reachedBy reports whether a device can register the memory.
func (m *Memory) reachedBy(device string) bool {
	return m.only == nil || slices.Contains(m.only, device)
}

// Size returns the size in bytes, 0 once closed.
func (m *Memory) Size() int64 { return int64(len(m.buf.Bytes())) }

// Segments returns nil: there are no dma-bufs.
func (m *Memory) Segments() []gpualloc.Segment { return nil }

// PCI returns the function on which the memory lies.
func (m *Memory) PCI() (pciaddr.Addr, bool) { return m.pci, true }

// DMA returns the bytes for devices of a network.
func (m *Memory) DMA() ([]byte, error) {
	switch mem := m.buf.Bytes(); {
	case m.staged:
		return nil, errCannotRegister
	case mem == nil:
		return nil, os.ErrClosed
	default:
		return mem, nil
	}
}

// Bytes returns the memory, nil once closed. It must not be used after Close.
func (m *Memory) Bytes() []byte { return m.buf.Bytes() }

// Hold keeps the memory until release is called.
func (m *Memory) Hold() (release func(), err error) { return m.buf.Hold() }

// ReadAt copies bytes out of the memory. It follows [io.ReaderAt].
func (m *Memory) ReadAt(p []byte, off int64) (int, error) {
	release, err := m.buf.Hold()
	if err != nil {
		return 0, err
	}
	defer release()
	mem := m.buf.Bytes()
	if off < 0 || off > int64(len(mem)) {
		return 0, failure.ErrRange
	}
	k := copy(p, mem[off:])
	if k < len(p) {
		return k, io.EOF
	}
	return k, nil
}

// WriteAt copies bytes into the memory. If they do not fit it writes nothing.
func (m *Memory) WriteAt(p []byte, off int64) (int, error) {
	release, err := m.buf.Hold()
	if err != nil {
		return 0, err
	}
	defer release()
	mem := m.buf.Bytes()
	if off < 0 || off > int64(len(mem)) || int64(len(p)) > int64(len(mem))-off {
		return 0, failure.ErrRange
	}
	return copy(mem[off:], p), nil
}

// Close frees the memory. While it is held Close returns [failure.ErrInUse] and frees nothing.
func (m *Memory) Close() error { return m.buf.Close() }

func (m *Memory) isRevoked() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revoked
}
