// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Xe speaks xe's own ioctls: Intel GPUs from Lunar Lake and Battlemage on, and
// older ones that were given to it. Linux 6.8 and later.
type Xe struct{ dev *Device }

// Xe is refused with ENOTTY for a Device of another driver.
func (d *Device) Xe() (Xe, error) { return Xe{d}, d.speaks("xe") }

// Flags of [Xe.Create].
const (
	XeDeferBacking     uint32 = 1 << 0 // DRM_XE_GEM_CREATE_FLAG_DEFER_BACKING: memory comes with the first use
	XeNeedsVisibleVRAM uint32 = 1 << 2 // DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM: in VRAM, then where CPUs reach it
)

// XeCaching is how CPUs cache a buffer. A buffer that can be in VRAM must be
// write-combined.
type XeCaching uint16

// The ways of caching.
const (
	XeWriteBack     XeCaching = 1 // DRM_XE_GEM_CPU_CACHING_WB
	XeWriteCombined XeCaching = 2 // DRM_XE_GEM_CPU_CACHING_WC
)

// Regions lists the memory that buffers can be placed in
// (DRM_XE_DEVICE_QUERY_MEM_REGIONS).
func (g Xe) Regions() ([]Region, error) {
	var infos []abiXeRegion
	err := g.dev.fd.Do(func(raw int) (err error) {
		infos, err = xeRegions(g.dev.t, raw)
		return err
	})
	if err != nil {
		return nil, g.dev.fail("DRM_IOCTL_XE_DEVICE_QUERY", "memory regions", err)
	}
	var out []Region
	for _, i := range infos {
		r := Region{
			VRAM: i.Class == xeClassVRAM, Instance: i.Instance, Page: int64(i.MinPageSize),
			Size: int64(i.TotalSize), Used: int64(i.Used), Visible: int64(i.Visible), VisibleUsed: int64(i.VisibleUsed),
		}
		if !r.VRAM { // the driver leaves these 0
			r.Visible, r.VisibleUsed = r.Size, r.Used
		}
		out = append(out, r)
	}
	return out, nil
}

// XeConfig is what xe says of a GPU.
type XeConfig struct {
	DeviceID     uint16
	Revision     uint16
	HasVRAM      bool
	MinAlignment int64 // of sizes and GPU addresses, in bytes
	VABits       int
}

// Config asks for DRM_XE_DEVICE_QUERY_CONFIG.
func (g Xe) Config() (XeConfig, error) {
	var c []uint64
	err := g.dev.fd.Do(func(raw int) (err error) {
		if c, err = xeConfig(g.dev.t, raw); err == nil && len(c) <= xeConfigVABits {
			err = unix.EPROTO
		}
		return err
	})
	if err != nil {
		return XeConfig{}, g.dev.fail("DRM_IOCTL_XE_DEVICE_QUERY", "config", err)
	}
	id := c[xeConfigRevAndDeviceID]
	return XeConfig{
		DeviceID: uint16(id), Revision: uint16(id >> 16), HasVRAM: c[xeConfigFlags]&xeFlagHasVRAM != 0,
		MinAlignment: int64(c[xeConfigMinAlignment]), VABits: int(c[xeConfigVABits]),
	}, nil
}

// Create makes a buffer that may be in any of regions; the driver tries VRAM
// first. size must be a multiple of the largest page of the regions.
//
// A buffer that may be in VRAM only cannot be imported by a device that is not
// peer to peer with the GPU: xe answers that EOPNOTSUPP, where it moves other
// buffers to system memory and says nothing.
//
// Errors: EINVAL for a size that is no multiple, no region or one that is not
// there, and write-back with VRAM; ENOMEM.
func (g Xe) Create(size int64, caching XeCaching, flags uint32, regions ...Region) (GEM, error) {
	arg := abiXeCreate{Size: uint64(size), Caching: uint16(caching), Flags: flags}
	for _, r := range regions {
		arg.Placement |= 1 << min(r.Instance, 31)
	}
	where := func() string { return fmt.Sprintf("%v, caching %d, flags %#x", regions, caching, flags) }
	return g.dev.create("DRM_IOCTL_XE_GEM_CREATE", size, where, func(raw int) (GEM, error) {
		return xeCreate(g.dev.t, raw, arg)
	})
}

// MmapOffset returns the offset at which [Device.Mmap] shows a buffer.
func (g Xe) MmapOffset(handle uint32) (uint64, error) {
	return g.dev.offset("DRM_IOCTL_XE_GEM_MMAP_OFFSET", handle, func(raw int) (uint64, error) {
		return xeMmapOffset(g.dev.t, raw, handle)
	})
}
