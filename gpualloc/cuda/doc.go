// SPDX-License-Identifier: Apache-2.0

// Package cuda allocates and exports the memory of NVIDIA GPUs through the
// CUDA driver API.
//
// Importing it registers the specs "cuda:0" (cuMemAlloc) and "cuda:0/vmm"
// (the virtual memory API, cuMemCreate) with gpualloc, with the GPU's UUID, a MIG
// instance's own, and PCI address as aliases. [Export] exports memory that the
// caller already owns, however it was allocated. [Devices] lists the GPUs and says
// of each whether it exports dma-bufs, and if not, why.
//
// libcuda.so.1 is loaded when it is first needed; the variable GPURDMA_LIBCUDA
// names another file. No CUDA header or toolkit is needed to build, and a
// build without cgo answers [ErrNotBuilt].
//
// # Contexts
//
// A CUDA context belongs to a thread, and goroutines move between threads.
// Every call into the library therefore makes its context current and restores
// the previous one, in one crossing into C. The context is the device's
// primary one, the one that the CUDA runtime and frameworks use; it is
// retained while an allocator or a buffer needs it.
//
// # The PCIe mapping
//
// A dma-buf of a GPU that is coherent with its CPU (Grace) addresses memory
// over the CPU's link, unless the PCIe mapping is asked for (driver 12.8 on).
// Not every importer takes such a descriptor: only mlx5's data-direct path
// (mlx5dv_reg_dmabuf_mr) can use it, and other drivers, and ordinary registrations
// by mlx5, fail on it with errno 524. Some GPUs refuse the flag (801). So the caller
// chooses, by [Mapping], and the default is an ordinary descriptor.
//
// Allocators make ordinary descriptors only. Package ibvfd registers them in the ordinary
// way, or by mlx5dv_reg_dmabuf_mr where the NIC has a data-direct function. If the kernel
// refuses the second way, as it may for the memory of a coherent GPU without the PCIe
// mapping, ibvfd registers in the ordinary way. On machines whose GPU is not coherent both
// descriptors lead to the same BAR. A program that registers by mlx5dv itself can ask
// [Export] for [MappingDataDirect].
//
// Sources of the rules: the CUDA driver API reference, cuda.h.
package cuda

// The calls of libcuda are in driver.go, once with cgo and once without. To use another call, add it there and in
// abi_cuda.go, and to its double in testbed/doubles.
