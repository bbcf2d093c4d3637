// SPDX-License-Identifier: Apache-2.0

package uverbs

// From include/uapi/rdma/ib_user_ioctl_verbs.h.

// The access flags of an MR: enum ib_uverbs_access_flags.
const (
	AccessLocalWrite      = 1 << 0  // IB_UVERBS_ACCESS_LOCAL_WRITE
	AccessRemoteWrite     = 1 << 1  // IB_UVERBS_ACCESS_REMOTE_WRITE
	AccessRemoteRead      = 1 << 2  // IB_UVERBS_ACCESS_REMOTE_READ
	AccessRemoteAtomic    = 1 << 3  // IB_UVERBS_ACCESS_REMOTE_ATOMIC
	AccessMWBind          = 1 << 4  // IB_UVERBS_ACCESS_MW_BIND
	AccessZeroBased       = 1 << 5  // IB_UVERBS_ACCESS_ZERO_BASED
	AccessOnDemand        = 1 << 6  // IB_UVERBS_ACCESS_ON_DEMAND
	AccessHugeTLB         = 1 << 7  // IB_UVERBS_ACCESS_HUGETLB
	AccessFlushGlobal     = 1 << 8  // IB_UVERBS_ACCESS_FLUSH_GLOBAL
	AccessFlushPersistent = 1 << 9  // IB_UVERBS_ACCESS_FLUSH_PERSISTENT
	AccessRelaxedOrdering = 1 << 20 // IB_UVERBS_ACCESS_RELAXED_ORDERING

	AccessOptional = 0x3ff00000 // IB_UVERBS_ACCESS_OPTIONAL_RANGE
)

// The drivers whose behaviour this package's callers know, of enum
// rdma_driver_id: what Identify answers.
const (
	DriverMLX5 = 1  // RDMA_DRIVER_MLX5
	DriverRXE  = 14 // RDMA_DRIVER_RXE
)
