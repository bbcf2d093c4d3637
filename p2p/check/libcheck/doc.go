// SPDX-License-Identifier: Apache-2.0

// Package libcheck has the checks of libraries (LIB): NCCL, RCCL, UCX, libfabric, NIXL, Mooncake,
// PyTorch, NVSHMEM, MSCCL++ and perftest. A library can leave GPUDirect RDMA out by rules of its own,
// even if the kernel and the drivers allow it.
//
// Package variables has the rules of each environment variable; this package reads the facts that
// the rules need, and the variables of this process, of the process that --pid names, or of a
// container's specification. To add a check of a library, write it here; to add a variable, change
// package variables.
package libcheck
