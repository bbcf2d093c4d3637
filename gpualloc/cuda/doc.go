// SPDX-License-Identifier: Apache-2.0

// Package cuda allocates and exports the memory of NVIDIA GPUs through the
// CUDA driver API.
//
// Importing it registers the specs "cuda:0" (cuMemAlloc) and "cuda:0/vmm" (the virtual
// memory API, cuMemCreate) with gpualloc, with the GPU's UUID, a MIG instance's own, and
// PCI address as aliases. [Export] exports memory that the caller already owns, however
// it was allocated. [Devices] lists the GPUs, and says whether each of them exports
// dma-bufs, or why not.
//
// libcuda.so.1 is loaded when it is first needed; the variable GPURDMA_LIBCUDA names
// another file. A build needs no CUDA header or toolkit. In a build without cgo,
// functions return [ErrNotBuilt].
//
// # Contexts
//
// A CUDA context belongs to a thread, and goroutines move between threads. So every call
// into the library makes its context current, and restores the previous one, in one call
// of C. The context is the device's primary context, which the CUDA runtime and
// frameworks use, too. The package retains it while an allocator or a buffer needs it.
//
// # The PCIe mapping
//
// A dma-buf of a GPU that is coherent with its CPU (Grace) addresses memory over the link
// to the CPU, unless the export asks for the PCIe mapping (driver 12.8 on). Only mlx5's
// data-direct path (mlx5dv_reg_dmabuf_mr) can use a descriptor with the PCIe mapping;
// other drivers, and ordinary registrations by mlx5, fail on it with errno 524. Some GPUs
// refuse the flag (801). So the caller chooses by [Mapping]; the default is an ordinary
// descriptor.
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
