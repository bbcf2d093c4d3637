// SPDX-License-Identifier: Apache-2.0

// Package levelzero allocates and exports the memory of Intel GPUs through
// Level Zero.
//
// Importing it registers the specs "ze:0", "ze:1" and so on with gpualloc, with
// the GPU's UUID and PCI address as aliases. [Export] exports memory that the
// caller already owns. [Devices] lists the GPUs.
//
// libze_loader.so.1 is loaded when it is first needed; the variable
// GPURDMA_LIBZE names another file. A build without cgo answers [ErrNotBuilt].
//
// # Export descriptors
//
// Memory must be allocated with ze_external_memory_export_desc_t to be exported
// as a dma-buf; the descriptor then stands for the whole allocation. A driver
// may export other memory as well, without complaint: what comes back is then
// a pool that the allocation lies somewhere in. Such a descriptor is refused by
// its size.
//
// Drivers differ in who owns the descriptor that zeMemGetAllocProperties
// returns: some make a new one at each call, some return the same again and
// keep it. It is asked for twice, and closed only if the two differ.
//
// Sources of the rules: ze_api.h, version 1.4 and later.
package levelzero
