// SPDX-License-Identifier: Apache-2.0

package uverbs

// From include/uapi/rdma/ib_user_ioctl_verbs.h.

// enum ib_uverbs_access_flags, as far as the probe needs it.
const accessLocalWrite = 1 << 0 // IB_UVERBS_ACCESS_LOCAL_WRITE

// The drivers whose behaviour this package's callers know, of enum
// rdma_driver_id: what Identify answers.
const (
	DriverMLX5 = 1  // RDMA_DRIVER_MLX5
	DriverRXE  = 14 // RDMA_DRIVER_RXE
)
