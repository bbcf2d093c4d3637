// SPDX-License-Identifier: Apache-2.0

package ibvfd

import "github.com/gpurdma/gpurdma/ibvfd/uverbs"

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
	AccessLocalWrite      Access = uverbs.AccessLocalWrite  // the local NIC may write: receives, READ responses
	AccessRemoteWrite     Access = uverbs.AccessRemoteWrite // needs AccessLocalWrite
	AccessRemoteRead      Access = uverbs.AccessRemoteRead
	AccessRemoteAtomic    Access = uverbs.AccessRemoteAtomic // needs AccessLocalWrite
	AccessMWBind          Access = uverbs.AccessMWBind       // memory windows may be bound
	AccessZeroBased       Access = uverbs.AccessZeroBased
	AccessOnDemand        Access = uverbs.AccessOnDemand
	AccessHugeTLB         Access = uverbs.AccessHugeTLB
	AccessFlushGlobal     Access = uverbs.AccessFlushGlobal     // OpFlush with FlushGlobal
	AccessFlushPersistent Access = uverbs.AccessFlushPersistent // OpFlush with FlushPersistent
	AccessRelaxedOrdering Access = uverbs.AccessRelaxedOrdering // the NIC's writes may overtake each other on PCIe
)

// accessFlush are those that OpFlush asks for.
const accessFlush = AccessFlushGlobal | AccessFlushPersistent

// AccessOptional are the flags that a kernel or NIC without the feature
// ignores instead of refusing the MR (IB_UVERBS_ACCESS_OPTIONAL_RANGE).
// AccessRelaxedOrdering is the only one so far. The caller chooses it for each
// MR: it makes bulk data faster, and must be left out where a program relies on
// the order of writes, as with a flag that is written after its data.
const AccessOptional Access = uverbs.AccessOptional

// String lists the flags: "local-write|remote-read", "none" for 0.
func (a Access) String() string {
	return uverbs.AccessNames(uint32(a))
}
