// SPDX-License-Identifier: Apache-2.0

// Package drm finds DRM nodes and speaks their ioctls: VERSION, GET_CAP, PRIME
// export and import, dumb buffers, GEM close, and the allocation ioctls of i915,
// xe, amdgpu and virtio-gpu.
//
// [Nodes] reads sysfs, and opens a node only for what sysfs does not say. [Open]
// opens a node. A GEM handle belongs to the [Device] that made it; a dma-buf of
// [Device.PrimeHandleToFD] does not need the Device any more.
//
// Dumb buffers are made on primary nodes (card0): the kernel refuses them on
// render nodes with EACCES, for every driver. A process that opens a primary node
// which no other has open becomes DRM master, which would keep a display server
// from starting: Open gives mastership up again at once.
//
// Every driver numbers its ioctls from the same start, so that a number of i915
// is another call for amdgpu. [Device.I915], [Device.Xe], [Device.Amdgpu] and
// [Device.Virtgpu] therefore ask for the driver's name first. Their buffers can
// be made on render nodes.
//
// Sources: include/uapi/drm/drm.h, drm_mode.h, i915_drm.h, xe_drm.h,
// amdgpu_drm.h, virtgpu_drm.h, drivers/gpu/drm/drm_ioctl.c.
package drm

// An abi_*.go has what a header of the kernel's has, and the file beside it the calls. To add a driver, write both.
