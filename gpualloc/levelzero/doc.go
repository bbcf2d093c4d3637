// SPDX-License-Identifier: Apache-2.0

// Package levelzero allocates and exports the memory of Intel GPUs through
// Level Zero.
//
// Importing it registers the specs "ze:0", "ze:1" and so on with gpualloc, with
// the GPU's UUID and PCI address as aliases. [Export] exports memory that the
// caller already owns. [Devices] lists the GPUs.
//
// libze_loader.so.1 is loaded when it is first needed; the variable GPURDMA_LIBZE
// names another file. In a build without cgo, functions return [ErrNotBuilt].
//
// # Export descriptors
//
// Memory must be allocated with ze_external_memory_export_desc_t to be exported as
// a dma-buf; the dma-buf is then of the whole allocation. A driver may export
// other memory as well, and report success: the dma-buf is then a pool that has
// the allocation at an unknown offset. This package recognizes such a dma-buf by
// its size, and refuses it.
//
// Drivers differ in the ownership of the descriptor that zeMemGetAllocProperties
// returns: some make a new one at each call, and others return one that they keep.
// This package makes the call twice, and closes the descriptors only if they
// differ.
//
// Sources of the rules: ze_api.h, version 1.4 and later.
package levelzero

// The calls of the loader are in driver.go, once with cgo and once without. To use another call, add it there and in
// abi_ze.go, and to its double in testbed/doubles.
