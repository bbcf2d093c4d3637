// SPDX-License-Identifier: Apache-2.0

package gpualloc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/drm"
)

// drmBackend exports dumb buffers of DRM drivers through PRIME.
type drmBackend struct{}

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

// noDRM is what to do on a machine without DRM devices.
const noDRM = "load a GPU's driver, or vgem (modprobe vgem), which needs no hardware"

func (drmBackend) discover(env Env) []candidate {
	nodes, err := drm.Nodes(env.Sys, env.Dev)
	if err != nil || len(nodes) == 0 {
		c := candidate{Description: Description{
			Spec: "drm", Exporter: "drm", Device: filepath.Join(env.dev(), "dri"),
			Why: "no DRM device", Remedy: noDRM,
		}}
		if err != nil {
			c.Why = err.Error()
		}
		return []candidate{c}
	}
	var out []candidate
	for _, group := range byDevice(nodes) {
		out = append(out, describeDRM(group))
	}
	return out
}

// byDevice groups nodes of the same device, in the order of first appearance.
func byDevice(nodes []drm.Node) [][]drm.Node {
	var out [][]drm.Node
	index := map[string]int{}
	for _, n := range nodes {
		i, ok := index[n.SysPath]
		if !ok {
			i = len(out)
			index[n.SysPath] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], n)
	}
	return out
}

// describeDRM asks a device's driver what it can do.
func describeDRM(nodes []drm.Node) candidate {
	var primary *drm.Node
	spec := nodes[0]
	for i, n := range nodes {
		if n.Type == drm.Primary && primary == nil {
			primary = &nodes[i]
		}
		if n.Type == drm.Render {
			spec = n // the name that users of GPUs know a device by
		}
	}
	c := candidate{Description: Description{
		Spec: "drm:" + spec.Name, Exporter: "drm", Driver: spec.Driver, Device: spec.Path,
	}}
	if a, ok := spec.PCI(); ok {
		c.PCI = &a
	}
	if primary == nil {
		c.Why = fmt.Sprintf("%s has no primary node, and render nodes refuse dumb buffers", spec.Name)
		c.Remedy = "give this process the device's /dev/dri/card node as well"
	} else {
		c.Device = primary.Path
		askDRM(&c)
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

// alias adds the other names of the device: its nodes, driver, PCI address.
func (c *candidate) alias(nodes []drm.Node) {
	add := func(name string) {
		if name = "drm:" + name; name != c.Spec {
			c.Aliases = append(c.Aliases, name)
		}
	}
	for _, n := range nodes {
		add(n.Name)
	}
	if c.Driver != "" {
		add(c.Driver)
	}
	if c.PCI != nil {
		add(c.PCI.String())
	}
}

// askDRM opens the primary node for a moment.
func askDRM(c *candidate) {
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
	c.Available, c.open = true, openDRM
	c.MaxSize = drm.MaxDumb()
	c.Limits = []Limit{{
		Name: "the size of a dumb buffer", Bytes: c.MaxSize, Scope: scopeSegment,
		Where: "DRM_IOCTL_MODE_CREATE_DUMB computes it in 32 bits",
		Raise: "use smaller segments",
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

// refused records why a device cannot be used.
func (c *candidate) refused(err error) {
	c.Why, c.err = err.Error(), err
	var e *dmabuf.Error
	if errors.As(err, &e) {
		c.Remedy = e.Remedy
		short := *e
		short.Remedy = ""
		c.Why = short.Error()
	}
}

func openDRM(env Env, d Description) (Allocator, error) {
	dev, err := drm.Open(d.Device)
	if err != nil {
		return nil, err
	}
	return newAllocator(env, d, drmExporter{dev}), nil
}

type drmExporter struct{ dev *drm.Device }

func (drmExporter) granule() int64          { return int64(os.Getpagesize()) }
func (drmExporter) fds() (peak, stay int64) { return 1, 1 }
func (e drmExporter) close() error          { return e.dev.Close() }

// export drops the GEM handle at once: the dma-buf keeps the memory, and the
// buffer then outlives the allocator.
func (e drmExporter) export(_ context.Context, size int64, _ string) (Segment, func() error, error) {
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
