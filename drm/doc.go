// SPDX-License-Identifier: Apache-2.0

// Package drm finds DRM nodes and speaks their ioctls: VERSION, GET_CAP, PRIME
// export and import, dumb buffers, GEM close.
//
// [Nodes] reads sysfs and opens nothing that sysfs can answer for. [Open]
// opens a node; a GEM handle belongs to the [Device] that made it, and the
// dma-buf that [Device.PrimeHandleToFD] returns lives on its own.
//
// Dumb buffers are made on primary nodes (card0): the kernel refuses them on
// render nodes with EACCES, for every driver. Opening a primary node that
// nobody uses makes the opener DRM master, which would keep a display server
// from starting: Open gives mastership up again at once.
//
// Sources: include/uapi/drm/drm.h, drm_mode.h, drivers/gpu/drm/drm_ioctl.c.
package drm
