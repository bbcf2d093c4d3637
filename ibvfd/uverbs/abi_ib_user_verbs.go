// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"structs"
	"unsafe"
)

// From include/uapi/rdma/ib_user_verbs.h.

// enum ib_uverbs_write_cmds
const (
	cmdAllocPD   = 3  // IB_USER_VERBS_CMD_ALLOC_PD
	cmdDeallocPD = 4  // IB_USER_VERBS_CMD_DEALLOC_PD
	cmdReregMR   = 11 // IB_USER_VERBS_CMD_REREG_MR
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

// enum ib_mr_rereg_flags of include/rdma/ib_verbs.h, IBV_REREG_MR_CHANGE_* of
// verbs.h. There is a third, 1, for the memory: on a dma-buf MR, mlx5 makes a
// host MR of it without a word. This package cannot send it.
const (
	reregPD     = 1 << 1
	reregAccess = 1 << 2
)

// reregMR is struct ib_uverbs_rereg_mr without driver data.
type reregMR struct {
	_           structs.HostLayout
	response    uint64 // of the write() ABI
	mrHandle    uint32
	flags       uint32
	start       uint64 // start, length and hcaVA are read with the flag for the memory only
	length      uint64
	hcaVA       uint64
	pdHandle    uint32
	accessFlags uint32
}

// reregMRResp is struct ib_uverbs_rereg_mr_resp without driver data.
type reregMRResp struct {
	_    structs.HostLayout
	lkey uint32
	rkey uint32
}

const (
	reregMRSize     = uint16(unsafe.Sizeof(reregMR{}))
	reregMRRespSize = uint16(unsafe.Sizeof(reregMRResp{}))
)
