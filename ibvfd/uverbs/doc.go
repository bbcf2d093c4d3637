// SPDX-License-Identifier: Apache-2.0

// Package uverbs speaks the kernel's RDMA ioctl ABI, RDMA_VERBS_IOCTL on
// /dev/infiniband/uverbsN, in pure Go.
//
// It holds what registering and probing need: [Open] with a context of its
// own, [File.AllocPD], [File.RegDMABufMR], [File.ReregMR], [File.QueryMR],
// [File.DestroyMR].
// [Wrap] works on a descriptor that has another owner, such as a libibverbs
// context's cmd_fd; handles of PDs made there are valid here, because both use
// one context of the kernel's.
//
// A [File] made by Open has a context without vendor data. Drivers whose
// GET_CONTEXT wants some (mlx5, for one) refuse it, mostly with EINVAL.
//
// Sources of the ABI: include/uapi/rdma/rdma_user_ioctl_cmds.h,
// ib_user_ioctl_cmds.h, ib_user_ioctl_verbs.h, ib_user_verbs.h. The ioctl ABI
// needs Linux 4.20, GET_CONTEXT through it 5.7, REG_DMABUF_MR 5.12.
package uverbs

// An abi_*.go has what a header of the kernel's has. To add a method of the kernel's, write its request as those in mr.go are.
