// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// I915 has i915's own ioctls on a Device, which it does not close: for Intel
// GPUs up to Alchemist (DG2), and Meteor Lake where xe is not asked for.
type I915 struct{ dev *Device }

// I915 returns i915's ioctls on the Device, or ENOTTY if the Device has another
// driver.
func (d *Device) I915() (I915, error) { return I915{d}, d.speaks("i915") }

// I915NeedsCPUAccess keeps a buffer in the part of VRAM that CPUs reach, or in
// system memory when that part is full
// (I915_GEM_CREATE_EXT_FLAG_NEEDS_CPU_ACCESS). The buffer's regions must
// include both.
const I915NeedsCPUAccess uint32 = 1 << 0

// Regions lists the memory that buffers can be placed in
// (DRM_I915_QUERY_MEMORY_REGIONS).
func (g I915) Regions() ([]Region, error) {
	var infos []abiI915RegionInfo
	err := g.dev.fd.Do(func(raw int) (err error) {
		infos, err = i915Regions(g.dev.t, raw)
		return err
	})
	if err != nil {
		return nil, g.dev.fail("DRM_IOCTL_I915_QUERY", "memory regions", err)
	}
	var out []Region
	for _, i := range infos {
		r := Region{VRAM: i.Region.Class == i915ClassDevice, Instance: i.Region.Instance, Size: i915Bytes(i.Probed)}
		r.Used = i915Used(r.Size, i.Unallocated)
		r.Visible, r.VisibleUsed = r.Size, r.Used
		// 0 is a kernel older than small BARs: all of it is visible.
		if r.VRAM && i.ProbedVisible != 0 {
			r.Visible = i915Bytes(i.ProbedVisible)
			r.VisibleUsed = i915Used(r.Visible, i.UnallocatedVisible)
		}
		out = append(out, r)
	}
	return out, nil
}

// i915Used is 0 where the driver does not say how much is free, as for a process
// without CAP_PERFMON.
func i915Used(size int64, free uint64) int64 {
	if free == math.MaxUint64 {
		return 0
	}
	return max(0, size-i915Bytes(free))
}

// i915Bytes: all ones are "unknown".
func i915Bytes(n uint64) int64 {
	if n == math.MaxUint64 {
		return 0
	}
	return int64(min(n, math.MaxInt64))
}

// Create makes a buffer in system memory (DRM_IOCTL_I915_GEM_CREATE); size is
// rounded up to pages. The driver allocates the memory at the first use.
func (g I915) Create(size int64) (GEM, error) {
	where := func() string { return "system memory" }
	return g.dev.create("DRM_IOCTL_I915_GEM_CREATE", size, where, func(raw int) (GEM, error) {
		return i915Create(g.dev.t, raw, size)
	})
}

// CreateExt makes a buffer in one of the regions, in the first that has room;
// without regions in system memory (DRM_IOCTL_I915_GEM_CREATE_EXT). size is
// rounded up to the largest page of the regions: 64 KiB in VRAM. The driver
// allocates the memory at the first use. flags is 0 or I915NeedsCPUAccess.
//
// No other device can import a buffer that may not be in system memory: i915
// moves a buffer there when a device attaches to it, and returns EOPNOTSUPP to
// the device if it cannot.
//
// Errors: EINVAL for a region that is not there or named twice, and for
// I915NeedsCPUAccess without system memory.
func (g I915) CreateExt(size int64, flags uint32, regions ...Region) (GEM, error) {
	list := make([]abiI915Region, len(regions))
	for i, r := range regions {
		list[i] = abiI915Region{Class: i915ClassSystem, Instance: r.Instance}
		if r.VRAM {
			list[i].Class = i915ClassDevice
		}
	}
	where := func() string { return fmt.Sprintf("%v, flags %#x", regions, flags) }
	return g.dev.create("DRM_IOCTL_I915_GEM_CREATE_EXT", size, where, func(raw int) (GEM, error) {
		return i915CreateExt(g.dev.t, raw, size, flags, list)
	})
}

// MmapOffset returns the offset at which [Device.Mmap] shows a buffer. GPUs
// with VRAM have one kind of mapping, older ones write-combined or none.
func (g I915) MmapOffset(handle uint32) (uint64, error) {
	return g.dev.offset("DRM_IOCTL_I915_GEM_MMAP_OFFSET", handle, func(raw int) (uint64, error) {
		var err error
		for _, kind := range []uint64{i915MmapFixed, i915MmapWC, i915MmapGTT} {
			var offset uint64
			if offset, err = i915MmapOffset(g.dev.t, raw, handle, kind); err == nil {
				return offset, nil
			}
			// Not this kind, with this GPU or for this buffer.
			if !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
				return 0, err
			}
		}
		return 0, err
	})
}
