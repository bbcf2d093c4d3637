// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"fmt"
	"strings"
)

// Access says what an MR, or a QP, allows. The numbers are the kernel's: enum
// ib_uverbs_access_flags in include/uapi/rdma/ib_user_ioctl_verbs.h.
type Access uint32

// The access flags. Reading by the local NIC is always allowed, and it is all
// that an MR with Access 0 allows: nothing is added to what the caller asks
// for.
//
// The flush flags are for MRs on host memory, from Linux 6.2 on: the kernel
// refuses them with EOPNOTSUPP where the device has no FLUSH (ib_check_mr_access in
// include/rdma/ib_verbs.h), rxe refuses AccessFlushPersistent with EINVAL on memory
// that is not persistent, and no kernel gives them to a dma-buf MR. They need
// no other flag.
const (
	AccessLocalWrite      Access = 1 << 0 // the local NIC may write: receives, READ responses
	AccessRemoteWrite     Access = 1 << 1 // needs AccessLocalWrite
	AccessRemoteRead      Access = 1 << 2
	AccessRemoteAtomic    Access = 1 << 3 // needs AccessLocalWrite
	AccessMWBind          Access = 1 << 4 // memory windows may be bound
	AccessZeroBased       Access = 1 << 5
	AccessOnDemand        Access = 1 << 6
	AccessHugeTLB         Access = 1 << 7
	AccessFlushGlobal     Access = 1 << 8  // OpFlush with FlushGlobal
	AccessFlushPersistent Access = 1 << 9  // OpFlush with FlushPersistent
	AccessRelaxedOrdering Access = 1 << 20 // the NIC's writes may overtake each other on PCIe
)

// accessFlush are those that OpFlush asks for.
const accessFlush = AccessFlushGlobal | AccessFlushPersistent

// AccessOptional are the flags that a kernel or NIC without the feature
// ignores instead of refusing the MR (IB_UVERBS_ACCESS_OPTIONAL_RANGE). Of
// these there is AccessRelaxedOrdering so far. It is the caller's choice for
// each MR: it pays for bulk data, and must be left out where the order of
// writes is looked at, such as a flag behind its data.
const AccessOptional Access = 0x3ff00000

// dmabufAccess is what the kernel accepts for a dma-buf MR. Source:
// UVERBS_METHOD_REG_DMABUF_MR in drivers/infiniband/core/uverbs_std_types_mr.c,
// ibv_reg_dmabuf_mr(3).
const dmabufAccess = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessRelaxedOrdering

var accessNames = []struct {
	bit  Access
	name string
}{
	{AccessLocalWrite, "local-write"},
	{AccessRemoteWrite, "remote-write"},
	{AccessRemoteRead, "remote-read"},
	{AccessRemoteAtomic, "remote-atomic"},
	{AccessMWBind, "mw-bind"},
	{AccessZeroBased, "zero-based"},
	{AccessOnDemand, "on-demand"},
	{AccessHugeTLB, "hugetlb"},
	{AccessFlushGlobal, "flush-global"},
	{AccessFlushPersistent, "flush-persistent"},
	{AccessRelaxedOrdering, "relaxed-ordering"},
}

// String lists the flags: "local-write|remote-read", "none" for 0.
func (a Access) String() string {
	if a == 0 {
		return "none"
	}
	var names []string
	for _, n := range accessNames {
		if a&n.bit != 0 {
			names = append(names, n.name)
			a &^= n.bit
		}
	}
	if a != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(a)))
	}
	return strings.Join(names, "|")
}
