// SPDX-License-Identifier: Apache-2.0

// Package libcheck has the checks of libraries that say no on their own (LIB): NCCL, RCCL, UCX,
// libfabric, NIXL, Mooncake, PyTorch, NVSHMEM, MSCCL++ and perftest.
//
// Package variables has the rules of each environment variable; this package reads the facts that
// the rules need, and the variables of this process, of the process that --pid names, or of a
// container's specification. To add a check of a library, write it here; to add a variable, change
// package variables.
package libcheck
