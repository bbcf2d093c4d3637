// SPDX-License-Identifier: Apache-2.0

// Package uverbs speaks the kernel's RDMA ioctl ABI, RDMA_VERBS_IOCTL on
// /dev/infiniband/uverbsN, in pure Go.
//
// It has the methods that registering and probing need: [File.AllocPD], [File.RegDMABufMR],
// [File.ReregMR], [File.ReregDMABufMR], [File.QueryMR], [File.DestroyMR]. [Open] opens a device and
// makes a context of its own. [Wrap] works on a descriptor that has another owner, such as the
// cmd_fd of a libibverbs context. Both then use one context of the kernel's, so a handle of a PD
// that libibverbs made is valid here.
//
// A [File] made by Open has a context without vendor data. Drivers whose
// GET_CONTEXT needs such data, as mlx5's does, refuse it, mostly with EINVAL.
//
// Sources of the ABI: include/uapi/rdma/rdma_user_ioctl_cmds.h,
// ib_user_ioctl_cmds.h, ib_user_ioctl_verbs.h, ib_user_verbs.h. The ioctl ABI
// needs Linux 4.20, GET_CONTEXT through it 5.7, REG_DMABUF_MR 5.12. No released kernel has the
// method of ReregDMABufMR: kernel/patches/rdma-rereg adds it.
package uverbs

// An abi_*.go has what a header of the kernel's has. To add a method of the kernel's, write its request as those in mr.go are.
