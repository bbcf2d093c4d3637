// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
)

// Dumb is a dumb buffer: memory that a driver with a display can make, and that
// the CPU can map. The driver chooses where it lies.
type Dumb struct {
	Handle uint32 // GEM handle; DestroyDumb or GEMClose drops it
	Pitch  uint32 // bytes from one row to the next
	Size   int64  // bytes, a multiple of the page size
}

// MaxDumb is the size of the largest dumb buffer in bytes: the kernel computes
// the size in 32 bits (drm_mode_create_dumb in
// drivers/gpu/drm/drm_dumb_buffers.c), and rounds it up to pages.
func MaxDumb() int64 { return math.MaxUint32 + 1 - int64(os.Getpagesize()) }

// CreateDumb makes a dumb buffer of width by height pixels of bpp bits. Drivers
// differ in bpp; all know 32.
//
// Errors: EINVAL for no pixels or more than [MaxDumb] bytes, EACCES on a
// render node, ENOSYS where the driver has no dumb buffers, ENOMEM.
func (d *Device) CreateDumb(width, height, bpp uint32) (Dumb, error) {
	var dumb Dumb
	err := d.fd.Do(func(raw int) (err error) {
		dumb, err = createDumb(d.t, raw, width, height, bpp)
		return err
	})
	if err != nil {
		return Dumb{}, d.fail("DRM_IOCTL_MODE_CREATE_DUMB", fmt.Sprintf("%d x %d pixels of %d bits", width, height, bpp), err)
	}
	return dumb, nil
}

// CreateDumbSize makes a dumb buffer of at least size bytes, with rows of one
// page and 32-bit pixels, which every driver accepts. Errors: failure.ErrRange
// for a size that is not 1 to MaxDumb, and those of CreateDumb.
func (d *Device) CreateDumbSize(size int64) (Dumb, error) {
	page := int64(os.Getpagesize())
	if size <= 0 || size > MaxDumb() {
		return Dumb{}, &failure.Error{
			Op: "create dumb buffer", Device: d.path,
			Detail: fmt.Sprintf("size %d", size),
			Remedy: fmt.Sprintf("use 1 to %d bytes", MaxDumb()),
			Err:    failure.ErrRange,
		}
	}
	dumb, err := d.CreateDumb(uint32(page/4), uint32((size+page-1)/page), 32)
	if err == nil && dumb.Size < size {
		err = errors.Join(&failure.Error{
			Op: "DRM_IOCTL_MODE_CREATE_DUMB", Device: d.path,
			Detail: fmt.Sprintf("asked for %d bytes, the driver answers %d", size, dumb.Size), Err: unix.EPROTO,
		}, d.DestroyDumb(dumb.Handle))
	}
	if err != nil {
		return Dumb{}, err
	}
	return dumb, nil
}

// MapDumb returns the offset at which Device.Mmap maps a dumb buffer
// (DRM_IOCTL_MODE_MAP_DUMB).
func (d *Device) MapDumb(handle uint32) (offset uint64, err error) {
	err = d.fd.Do(func(raw int) (err error) {
		offset, err = mapDumb(d.t, raw, handle)
		return err
	})
	return offset, d.failHandle("DRM_IOCTL_MODE_MAP_DUMB", handle, err)
}

// DestroyDumb drops a dumb buffer's handle. Memory that was exported stays.
func (d *Device) DestroyDumb(handle uint32) error {
	err := d.fd.Do(func(raw int) error { return destroyDumb(d.t, raw, handle) })
	return d.failHandle("DRM_IOCTL_MODE_DESTROY_DUMB", handle, err)
}
