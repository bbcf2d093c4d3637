// SPDX-License-Identifier: Apache-2.0

// Package gpualloc allocates memory and exports it as dma-bufs, on the GPUs of
// every vendor.
//
// A spec names an allocator: "drm:renderD128", "drm:vgem", "drm:0000:03:00.0",
// "udmabuf", "heap:system", or "auto". [Discover] lists every allocator that
// this build knows on this machine; for one that cannot be used, it gives the
// reason. [Open] opens an [Allocator], which makes [Buffer]s.
//
// A Buffer is a list of segments, each a part of one dma-buf. The CPU reads and
// writes it through a view, in which no RDMA device has a part; so a program can
// verify transfers by it. The view of a GPU's buffer is mapped through the DRM
// node: it shows the buffer wherever the driver moves it, and does not make the
// driver move it.
//
// # GPUs
//
// A GPU that amdgpu, i915 or xe drives is a DRM device with memory of its own:
// "drm:renderD128", "drm:0000:03:00.0", and "drm:amdgpu" where there is one such
// GPU. Its driver's ioctls place a buffer in VRAM, where the CPU and other
// devices reach it, or in system memory with "/system" at the spec's end. All
// three drivers move a buffer from VRAM to system memory when they need to, or
// when something attaches to it that cannot reach VRAM; with "/vram-only" xe
// refuses that instead. Every other DRM device makes dumb buffers.
//
// # Lifetimes
//
// An object that uses a buffer's memory, such as an MR, holds the buffer
// ([Buffer.Hold]): Close of a held buffer returns failure.ErrInUse and frees
// nothing. [Buffer.CloseFDs] closes the exported descriptors earlier, as
// applications do after registration.
//
// # Limits
//
// Alloc compares a size with the limits of the exporter, the machine's free
// memory, the cgroup and the limit of open files, and returns failure.ErrLimit
// before it allocates anything: the kernel often answers too large a size with
// the OOM killer. With [Options.Force] the kernel decides, except about
// descriptors.
package gpualloc

// Each backend has a file, which registers it. To add one, write a file, or a package if it loads a vendor's library.
