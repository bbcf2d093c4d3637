// SPDX-License-Identifier: Apache-2.0

package uverbs

// From include/uapi/rdma/ib_user_ioctl_verbs.h.

// enum ib_uverbs_access_flags, as far as the probe needs it.
const accessLocalWrite = 1 << 0 // IB_UVERBS_ACCESS_LOCAL_WRITE
