// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/drm"
)

// dumbIn says where a driver's dumb buffers lie and how much of a choice it is
// for "auto". Drivers that are not listed decide for themselves (KindUnknown)
// and count as a GPU.
var dumbIn = map[string]struct {
	kind Kind
	rank int
}{
	"vgem":       {KindSystem, rankTest},
	"vkms":       {KindSystem, rankTest},
	"virtio_gpu": {KindSystem, rankVirtual},
	"udl":        {KindSystem, rankVirtual},
	"simpledrm":  {KindSystem, rankVirtual},
	"efidrm":     {KindSystem, rankVirtual},
	"vesadrm":    {KindSystem, rankVirtual},
	"hyperv_drm": {KindSystem, rankVirtual},
	"mgag200":    {KindSystem, rankVirtual},
	"ast":        {KindSystem, rankVirtual},
	"bochs-drm":  {KindUnknown, rankVirtual},
	"qxl":        {KindUnknown, rankVirtual},
	"cirrus":     {KindUnknown, rankVirtual},
	"vboxvideo":  {KindUnknown, rankVirtual},
	"vmwgfx":     {KindUnknown, rankVirtual},
}

// describeDumb asks a device without allocation ioctls that are known here for
// its dumb buffers, which are made on the primary node.
func describeDumb(c candidate, nodes []drm.Node) candidate {
	if primary, ok := nodeOf(nodes, drm.Primary); ok {
		c.Device = primary.Path
		askDumb(&c)
	} else {
		c.Why = fmt.Sprintf("%s has no primary node, and render nodes refuse dumb buffers", nodes[0].Name)
		c.Remedy = "give this process the device's /dev/dri/card node as well"
	}
	c.alias(nodes)
	place, known := dumbIn[c.Driver]
	c.Kind, c.rank = place.kind, place.rank
	switch {
	case known:
	case c.PCI != nil:
		c.rank = rankGPU
	default:
		c.rank = rankVirtual
	}
	return c
}

// askDumb opens the primary node for a moment.
func askDumb(c *candidate) {
	d, err := drm.Open(c.Device)
	if err != nil {
		c.refused(err)
		return
	}
	defer d.Close()
	v, err := d.Version()
	if err != nil {
		c.refused(err)
		return
	}
	c.Driver = v.Name
	if err := hasDumb(d); err != nil {
		c.refused(err)
		c.Why = fmt.Sprintf("driver %s has no dumb buffers: %s", v.Name, c.Why)
		return
	}
	if n, err := d.Cap(drm.CapPrime); err != nil || n&drm.PrimeExport == 0 {
		c.Why = fmt.Sprintf("driver %s does not export dma-bufs (PRIME)", v.Name)
		return
	}
	c.Available, c.open = true, openDumb
	c.MaxSize = drm.MaxDumb()
	c.Limits = []Limit{{
		Name: "the size of a dumb buffer", Bytes: c.MaxSize, Scope: scopeSegment,
		Where: "DRM_IOCTL_MODE_CREATE_DUMB computes it in 32 bits",
		Raise: atMost(c.MaxSize),
	}}
}

// hasDumb asks GET_CAP, which answers EOPNOTSUPP for drivers without a display
// (vgem) whether they have dumb buffers or not: those are asked for a small one.
func hasDumb(d *drm.Device) error {
	n, err := d.Cap(drm.CapDumbBuffer)
	if err == nil && n == 0 {
		return unix.ENOSYS
	}
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	dumb, err := d.CreateDumbSize(1)
	if err != nil {
		return err
	}
	return d.DestroyDumb(dumb.Handle)
}

func openDumb(env Env, d Description) (Allocator, error) {
	dev, err := drm.Open(d.Device)
	if err != nil {
		return nil, err
	}
	return newAllocator(env, d, dumbExporter{dev}), nil
}

type dumbExporter struct{ dev *drm.Device }

func (dumbExporter) granule() int64          { return int64(os.Getpagesize()) }
func (dumbExporter) fds() (peak, stay int64) { return 1, 1 }
func (e dumbExporter) close() error          { return e.dev.Close() }

// export drops the GEM handle at once: the dma-buf keeps the memory, and the
// buffer then outlives the allocator.
func (e dumbExporter) export(_ context.Context, size int64, _ string) (Segment, func() error, error) {
	dumb, err := e.dev.CreateDumbSize(size)
	if err != nil {
		return Segment{}, nil, err
	}
	buf, err := e.dev.PrimeHandleToFD(dumb.Handle, drm.ReadWrite)
	if gone := e.dev.DestroyDumb(dumb.Handle); gone != nil && err == nil {
		_ = buf.Close()
		return Segment{}, nil, gone
	}
	if err != nil {
		return Segment{}, nil, err
	}
	return Segment{Buf: buf, Size: buf.Size()}, nil, nil
}
