// SPDX-License-Identifier: Apache-2.0

// Package rocm allocates and exports the memory of AMD GPUs through the ROCm
// runtime (HSA).
//
// Importing it registers the specs "rocm:0", "rocm:1" and so on with gpualloc,
// with the GPU's UUID and PCI address as aliases. [Export] exports memory that
// the caller already owns, from HSA or from HIP, which stands on it. [Devices]
// lists the GPUs.
//
// libhsa-runtime64.so.1 is loaded when it is first needed; the variable
// GPURDMA_LIBHSA names another file. Exports need a runtime with
// hsa_amd_portable_export_dmabuf (ROCm 5.6 on); an older one is refused as too
// old. In a build without cgo, functions return [ErrNotBuilt].
//
// # Offsets
//
// The runtime exports whole buffer objects, which many small allocations share,
// and reports the offset of the address that was asked for. This package
// compares the offset with the dma-buf's real size. If the offset is 0 and the
// dma-buf is larger than the allocation, the package asks for a second address,
// and uses the offset only if the second one differs by as much.
//
// # Where the memory lies
//
// An export does not say where the bytes are: amdgpu moves a buffer to system
// memory when an importer cannot reach the GPU, and reports success. See
// package p2p.
//
// Sources of the rules: hsa.h, hsa_ext_amd.h.
package rocm

// The calls of the runtime are in driver.go, once with cgo and once without. To use another call, add it there and in
// abi_hsa.go, and to its double in testbed/doubles.
