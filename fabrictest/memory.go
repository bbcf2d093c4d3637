// SPDX-License-Identifier: Apache-2.0

package fabrictest

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/gpualloc"
	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// Memory stands for a GPU's memory. It is a [gpurdma.Source]: the CPU accesses it by ReadAt and
// WriteAt, and NICs of a Network access it directly, unless it is staged.
type Memory struct {
	mem    *memnic.Memory
	closed func()
}

// NewMemory makes size bytes of zeroed memory that NICs can register.
func NewMemory(size int64) (*Memory, error) { return newMemory(size, memnic.MemoryOptions{}) }

// NewMemoryOf makes size bytes of zeroed memory that the NICs of these names can register, and no
// others.
func NewMemoryOf(size int64, nics ...string) (*Memory, error) {
	return newMemory(size, memnic.MemoryOptions{Only: append([]string{}, nics...)})
}

// NewStagedMemory makes size bytes of zeroed memory that NICs cannot register: buffers of it
// are staged.
func NewStagedMemory(size int64) (*Memory, error) {
	return newMemory(size, memnic.MemoryOptions{Staged: true})
}

func newMemory(size int64, opt memnic.MemoryOptions) (*Memory, error) {
	m, err := memnic.NewMemory(size, opt)
	if err != nil {
		return nil, err
	}
	return &Memory{mem: m, closed: func() {}}, nil
}

// pciOf returns the PCI function of an allocator: "cuda:1" is on another one than "cuda:0".
func pciOf(spec string) pciaddr.Addr {
	_, index, _ := strings.Cut(spec, ":")
	i, _ := strconv.ParseUint(index, 10, 6)
	return pciaddr.Addr{Bus: uint8(3 + i)}
}

// specs are the forms of the specs of package gpualloc. A GPU is named by its number, its PCI
// address or its UUID.
var specs = func() *regexp.Regexp {
	const uuid = `(GPU-|MIG-)?[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|GPU-[0-9A-Fa-f]{16}`
	const pci = `[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]`
	return regexp.MustCompile(`^(auto|udmabuf|heap:[^/:]+|drm:[^/]+(/[a-z-]+)?|((cuda|rocm|ze):([0-9]+|` + pci + `|` + uuid + `)|` + uuid + `)(/[a-z-]+)?)$`)
}()

// checkSpec refuses a spec that no machine has. Specs of a [gpualloc.Runtime] of the program are
// valid, too.
func checkSpec(spec string) error {
	if spec == "staged" || specs.MatchString(spec) {
		return nil
	}
	a, err := gpualloc.Open(spec, gpualloc.Env{})
	switch {
	case err == nil:
		return a.Close()
	case errors.Is(err, gpualloc.ErrUnavailable):
		return nil
	case errors.Is(err, gpualloc.ErrUnknownSpec):
		return &failure.Error{
			Op: "open allocator", Device: strconv.Quote(spec), Err: gpualloc.ErrUnknownSpec,
			Remedy: "fabrictest takes all of package gpualloc, such as auto, cuda:0, drm:renderD128, heap:system and udmabuf, as well as host and staged",
		}
	}
	return err
}

// Size returns the number of bytes, 0 after Close.
func (m *Memory) Size() int64 { return m.mem.Size() }

// Segments returns nil: there are no dma-bufs.
func (m *Memory) Segments() []gpualloc.Segment { return nil }

// PCI returns the address of a PCI function, which stands for the GPU that has the memory.
func (m *Memory) PCI() (pciaddr.Addr, bool) { return m.mem.PCI() }

// Hold keeps the memory: until release is called, Close returns failure.ErrInUse. It implements
// dmabuf.Holder.
func (m *Memory) Hold() (release func(), err error) { return m.mem.Hold() }

// ReadAt copies bytes out of the memory. It follows io.ReaderAt.
func (m *Memory) ReadAt(p []byte, off int64) (int, error) { return m.mem.ReadAt(p, off) }

// WriteAt copies bytes into the memory. If they do not fit, it returns failure.ErrRange and
// writes nothing.
func (m *Memory) WriteAt(p []byte, off int64) (int, error) { return m.mem.WriteAt(p, off) }

// Close frees the memory. While a Buffer has it registered, Close returns failure.ErrInUse and
// frees nothing.
func (m *Memory) Close() error {
	if err := m.mem.Close(); err != nil {
		return err
	}
	m.closed()
	return nil
}

// Revoke takes memory away from the NICs, as a GPU's driver may. When Revoke has returned, no
// NIC accesses the memory any more: an operation on the memory fails, and ends its connection.
// The memory cannot be registered again.
func (n *Network) Revoke(m *Memory) { n.net.Revoke(m.mem) }
