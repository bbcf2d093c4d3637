// SPDX-License-Identifier: Apache-2.0

package uverbs

import "structs"

// From include/uapi/rdma/ib_user_verbs.h.

// enum ib_uverbs_write_cmds
const (
	cmdAllocPD   = 3 // IB_USER_VERBS_CMD_ALLOC_PD
	cmdDeallocPD = 4 // IB_USER_VERBS_CMD_DEALLOC_PD
)

// allocPD is struct ib_uverbs_alloc_pd without driver data.
type allocPD struct {
	_        structs.HostLayout
	response uint64 // of the write() ABI; the ioctl takes UVERBS_ATTR_CORE_OUT
}

// allocPDResp is struct ib_uverbs_alloc_pd_resp without driver data.
type allocPDResp struct {
	_        structs.HostLayout
	pdHandle uint32
}

// deallocPD is struct ib_uverbs_dealloc_pd.
type deallocPD struct {
	_        structs.HostLayout
	pdHandle uint32
}
