// SPDX-License-Identifier: Apache-2.0

// Package gpualloc allocates memory and exports it as dma-bufs, on the GPUs of
// every vendor.
//
// An allocator is chosen by a spec: "drm:renderD128", "drm:vgem",
// "drm:0000:03:00.0", "udmabuf", "heap:system", or "auto". [Discover] lists
// every allocator that this build knows on this machine, those that cannot be
// used with the reason. [Open] opens one, and [Allocator] makes [Buffer]s.
//
// A Buffer is a list of segments, each a part of one dma-buf. It can be read
// and written by the CPU through a view that no RDMA device has a part in,
// which is how transfers are verified. A GPU's view is mapped through its DRM
// node: it shows the buffer wherever the driver moves it, and does not itself
// make it move.
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
// A user of a buffer's memory, such as an MR, holds it ([Buffer.Hold]): closing a
// held buffer answers dmabuf.ErrInUse and frees nothing. The exported descriptors
// can be closed earlier with [Buffer.CloseFDs], as applications do after
// registration.
//
// # Limits
//
// A size that the exporter, the machine's free memory, the cgroup or the limit
// of open files does not allow is refused before anything is allocated, with
// dmabuf.ErrLimit: the kernel's own answer to too much memory is often the OOM
// killer. [Options.Force] lets the kernel answer, except for descriptors.
package gpualloc

// Each backend has a file, which registers it. To add one, write a file, or a package if it loads a vendor's library.
