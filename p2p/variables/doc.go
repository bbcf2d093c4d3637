// SPDX-License-Identifier: Apache-2.0

// Package variables judges the environment variables of NCCL, RCCL, UCX, libfabric,
// aws-ofi-nccl, NIXL, Mooncake, PyTorch, NVSHMEM and MSCCL++ that change the path
// between a GPU and a NIC, by the facts of one machine. To add a variable, or a new rule
// of a library, change this package.
//
// [Judge] takes [Facts] and a set of variables, and reads no files. The same value may
// be right on one machine and wrong on another: NCCL_NET_GDR_C2C=0 has no effect on a
// machine with PCI GPUs, and disables GPUDirect RDMA on a GH200. If the effect of a
// value depends on a fact that was not read, the judgement is unknown.
//
// [Catalogue] has each variable with its default, the version that introduced it, its
// effect and the source of that statement. [FromSpec] reads the variables of a
// container from its specification.
//
// Some libraries also read files: NCCL reads /etc/nccl.conf and ~/.nccl.conf, UCX reads
// ucx.conf, libfabric reads a configuration of its own, NIXL reads ~/.nixl.cfg and
// /etc/nixl.cfg. This package does not read them. A variable that is set overrides
// them, except in libfabric with FI_PREFER_SYSCONFIG.
package variables
