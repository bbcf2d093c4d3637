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

// Virtgpu has virtio-gpu's own ioctls on a Device, which it does not close.
type Virtgpu struct{ dev *Device }

// Virtgpu returns virtio-gpu's ioctls on the Device, or ENOTTY if the Device
// has another driver.
func (d *Device) Virtgpu() (Virtgpu, error) { return Virtgpu{d}, d.speaks("virtio_gpu") }

// VirtgpuParam is a parameter of virtio-gpu, by its number (VIRTGPU_PARAM_…).
type VirtgpuParam uint64

// Parameters.
const (
	Virtgpu3D          VirtgpuParam = 1 // VIRTGPU_PARAM_3D_FEATURES
	VirtgpuBlob        VirtgpuParam = 3 // VIRTGPU_PARAM_RESOURCE_BLOB: 1 if Create works
	VirtgpuHostVisible VirtgpuParam = 4 // VIRTGPU_PARAM_HOST_VISIBLE: the host's memory can be mapped
	VirtgpuCrossDevice VirtgpuParam = 5 // VIRTGPU_PARAM_CROSS_DEVICE: shared with other virtio devices
	VirtgpuCapsets     VirtgpuParam = 7 // VIRTGPU_PARAM_SUPPORTED_CAPSET_IDs: a bit for each (Linux 5.16)
)

// Param returns a parameter's value; EINVAL if the kernel does not know the
// parameter.
func (g Virtgpu) Param(p VirtgpuParam) (uint64, error) {
	var value uint64
	err := g.dev.fd.Do(func(raw int) (err error) {
		value, err = virtgpuGetparam(g.dev.t, raw, uint64(p))
		return err
	})
	return value, g.dev.fail("DRM_IOCTL_VIRTGPU_GETPARAM", fmt.Sprintf("parameter %d", p), err)
}

// VirtgpuMem says in which memory a blob lies.
type VirtgpuMem uint32

// Kinds of blobs.
const (
	VirtgpuGuest     VirtgpuMem = 0x1 // VIRTGPU_BLOB_MEM_GUEST: the guest's memory, known to the host
	VirtgpuHost      VirtgpuMem = 0x2 // VIRTGPU_BLOB_MEM_HOST3D: the host's GPU memory
	VirtgpuHostGuest VirtgpuMem = 0x3 // VIRTGPU_BLOB_MEM_HOST3D_GUEST: the host's, with a copy in the guest
)

// Flags of [Virtgpu.Create].
const (
	VirtgpuMappable  uint32 = 0x1 // VIRTGPU_BLOB_FLAG_USE_MAPPABLE
	VirtgpuShareable uint32 = 0x2 // VIRTGPU_BLOB_FLAG_USE_SHAREABLE: can be exported
	VirtgpuCrossUse  uint32 = 0x4 // VIRTGPU_BLOB_FLAG_USE_CROSS_DEVICE
)

// Create makes a blob: memory that guest and host share. id names a blob of the
// host's memory, which a command of a 3D context has made; it is 0 for a blob
// of the guest's memory.
//
// Errors: EINVAL where the hypervisor has no blobs ([VirtgpuBlob] is 0), and
// for kinds and flags that it lacks.
func (g Virtgpu) Create(size int64, mem VirtgpuMem, flags uint32, id uint64) (GEM, error) {
	const op = "DRM_IOCTL_VIRTGPU_RESOURCE_CREATE_BLOB"
	page := int64(os.Getpagesize())
	if size > math.MaxInt64-page {
		return GEM{}, g.dev.fail(op, fmt.Sprintf("size %d", size), failure.ErrRange)
	}
	size = (size + page - 1) / page * page // the driver wants pages
	arg := abiVirtgpuBlob{BlobMem: uint32(mem), BlobFlags: flags, Size: uint64(size), BlobID: id}
	where := func() string { return fmt.Sprintf("kind %d, flags %#x", mem, flags) }
	b, err := g.dev.create(op, size, where, func(raw int) (GEM, error) {
		handle, err := virtgpuBlob(g.dev.t, raw, arg)
		return GEM{Handle: handle, Size: size}, err
	})
	var e *failure.Error
	if errors.Is(err, unix.EINVAL) && !errors.Is(err, failure.ErrRange) && errors.As(err, &e) {
		if n, ask := g.Param(VirtgpuBlob); ask == nil && n == 0 {
			e.Remedy = "the hypervisor offers no blobs: QEMU's virtio-gpu has them with blob=on"
		}
	}
	return b, err
}

// Caps reads a capability set of the hypervisor's renderer: at most length
// bytes of it.
//
// Errors: EINVAL for a set that the hypervisor does not have; ENOSYS if it has
// no sets; failure.ErrRange for a length that is not positive or too large.
func (g Virtgpu) Caps(set, version uint32, length int) ([]byte, error) {
	if length <= 0 || length > maxQuery {
		return nil, g.dev.fail("DRM_IOCTL_VIRTGPU_GET_CAPS", fmt.Sprintf("%d bytes", length), failure.ErrRange)
	}
	data := make([]byte, length)
	err := g.dev.fd.Do(func(raw int) error { return virtgpuGetCaps(g.dev.t, raw, set, version, data) })
	if err != nil {
		return nil, g.dev.fail("DRM_IOCTL_VIRTGPU_GET_CAPS", fmt.Sprintf("set %d, version %d", set, version), err)
	}
	return data, nil
}

// MmapOffset returns the offset at which [Device.Mmap] shows a buffer
// (DRM_IOCTL_VIRTGPU_MAP).
func (g Virtgpu) MmapOffset(handle uint32) (uint64, error) {
	return g.dev.offset("DRM_IOCTL_VIRTGPU_MAP", handle, func(raw int) (uint64, error) {
		return virtgpuMap(g.dev.t, raw, handle)
	})
}
