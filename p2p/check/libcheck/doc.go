// SPDX-License-Identifier: Apache-2.0

// Package libcheck has the checks of libraries that say no on their own (LIB): NCCL, RCCL, UCX,
// libfabric, NIXL, Mooncake, PyTorch, NVSHMEM, MSCCL++ and perftest.
//
// What a variable of the environment does, package variables says; this package reads the facts
// that it goes by, and the variables of this process, of the one that --pid names, or of a
// container's specification. To add a check of a library, write it here; to add a variable, change
// package variables.
package libcheck
