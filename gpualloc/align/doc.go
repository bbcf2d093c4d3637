// SPDX-License-Identifier: Apache-2.0

// Package align finds the exports and registrations for memory that the caller
// already owns: the ranges to ask the GPU's runtime for, the offset of the memory
// in each descriptor, and the IOVA and length of the MR on it.
//
// The package only computes. [Solve] returns which exports to make: a [Piece]
// for each. After an export, [Piece.Bind] compares the plan with the
// descriptor, above all with its size, before the descriptor is registered. A
// descriptor of only the first of many segments, or of a whole block where a
// part was asked for, would register without an error, and the NIC would move
// the wrong bytes.
//
// The rules come from the CUDA driver API (cuMemGetHandleForAddressRange:
// address and size are multiples of the host's page size), the ROCm runtime
// (hsa_amd_portable_export_dmabuf reports an offset), Level Zero
// (ze_external_memory_export_fd_t stands for a whole allocation) and the
// kernel (ib_umem_dmabuf_get and uverbs: offset and IOVA agree below the page
// size, offset + length fits the dma-buf).
package align

// solve.go plans the exports, and bind.go compares them with the plan. To follow another runtime's rule, change
// solve.go.
