// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/drm"
)

// gemExporter makes buffers by a GPU driver's own ioctls.
type gemExporter struct {
	node *sharedNode
	desc Description
	gpu  gpu
	p    place
	mem  memory // what there is; how much of it is free is asked for each time
	unit int64
}

func newGEMExporter(dev *drm.Device, d Description, p place) (*gemExporter, error) {
	class := d.Class
	if class == "" {
		class = d.Driver
	}
	g, err := gpuDrivers[class](dev)
	if err != nil {
		return nil, err
	}
	m, err := askMemory(g)
	if err != nil {
		return nil, err
	}
	return &gemExporter{node: &sharedNode{dev: dev, users: 1}, desc: d, gpu: g, p: p, mem: m, unit: m.granule(p)}, nil
}

// sharedNode is a DRM node that is closed with its last user: GEM handles live
// in it, and buffers outlive their allocator.
type sharedNode struct {
	dev *drm.Device

	mu    sync.Mutex
	users int
}

func (n *sharedNode) hold() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.users++
}

func (n *sharedNode) release() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.users--; n.users > 0 {
		return nil
	}
	return n.dev.Close()
}

func (e *gemExporter) granule() int64          { return e.unit }
func (e *gemExporter) fds() (peak, stay int64) { return 1, 1 }
func (e *gemExporter) close() error            { return e.node.release() }

// limits is the VRAM that is free now. For a buffer that does not fit, drivers move
// others out of VRAM, or make it in system memory, and report success in both cases.
func (e *gemExporter) limits() []Limit {
	if e.p == inSystem {
		return nil
	}
	m, err := askMemory(e.gpu)
	if err != nil {
		return nil // the allocation says what is wrong
	}
	l := vramLimit(e.desc, m)
	l.Name, l.Scope = "the free part of "+l.Name, scopeTotal
	l.Raise = "free memory on the GPU, ask for less, or force it (the driver then moves buffers to system memory)"
	_, l.Bytes, _ = m.visible()
	return []Limit{l}
}

// export keeps the GEM handle: the view is mapped by it, and the DRM node's
// fdinfo counts the memory as this process's.
func (e *gemExporter) export(_ context.Context, size int64, _ string) (Segment, func() error, error) {
	gem, err := e.gpu.create(size, e.p, e.mem)
	if err != nil {
		return Segment{}, nil, err
	}
	e.node.hold()
	free := func() error { return errors.Join(e.drop(gem.Handle), e.node.release()) }
	buf, err := e.node.dev.PrimeHandleToFD(gem.Handle, drm.ReadWrite)
	if err != nil {
		return Segment{}, nil, errors.Join(err, free())
	}
	return Segment{Buf: buf, Size: gem.Size, view: func() (part, error) { return e.mmap(gem) }}, free, nil
}

// drop closes a handle. A device that is gone has dropped its handles, or does
// so when the node is closed.
func (e *gemExporter) drop(handle uint32) error {
	err := e.node.dev.GEMClose(handle)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// mmap shows a buffer through the DRM node, which leaves it where it is; the
// CPU access brackets of the dma-buf make amdgpu and xe move it to system
// memory.
func (e *gemExporter) mmap(gem drm.GEM) (part, error) {
	offset, err := e.gpu.MmapOffset(gem.Handle)
	if err != nil {
		return nil, err
	}
	return e.node.dev.Mmap(offset, gem.Size)
}
