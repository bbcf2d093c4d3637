// SPDX-License-Identifier: Apache-2.0

package ibvfd

import "github.com/gpurdma/gpurdma/ibvfd/uverbs"

// Access says what an MR, or a QP, allows. The numbers are the kernel's: enum
// ib_uverbs_access_flags in include/uapi/rdma/ib_user_ioctl_verbs.h.
type Access uint32

// The access flags. The local NIC may always read an MR. An MR with Access 0 allows that and
// nothing else: this package adds no flag to those that the caller gives.
//
// The flush flags are for MRs on host memory, and need Linux 6.2 and no other flag. The kernel
// refuses them with EOPNOTSUPP if the device has no FLUSH (ib_check_mr_access in
// include/rdma/ib_verbs.h). rxe refuses AccessFlushPersistent with EINVAL on memory that is not
// persistent. No kernel gives them to a dma-buf MR.
const (
	AccessLocalWrite      Access = uverbs.AccessLocalWrite  // the local NIC may write: receives, READ responses
	AccessRemoteWrite     Access = uverbs.AccessRemoteWrite // needs AccessLocalWrite
	AccessRemoteRead      Access = uverbs.AccessRemoteRead
	AccessRemoteAtomic    Access = uverbs.AccessRemoteAtomic    // needs AccessLocalWrite
	AccessMWBind          Access = uverbs.AccessMWBind          // memory windows may be bound
	AccessZeroBased       Access = uverbs.AccessZeroBased       // work requests name offsets from the first byte; not every provider has it
	AccessOnDemand        Access = uverbs.AccessOnDemand        // host memory that is not pinned: the NIC faults pages in (ODP)
	AccessHugeTLB         Access = uverbs.AccessHugeTLB         // with AccessOnDemand: the memory is of huge pages only
	AccessFlushGlobal     Access = uverbs.AccessFlushGlobal     // OpFlush with FlushGlobal
	AccessFlushPersistent Access = uverbs.AccessFlushPersistent // OpFlush with FlushPersistent
	AccessRelaxedOrdering Access = uverbs.AccessRelaxedOrdering // the NIC's writes may overtake each other on PCIe
)

// accessFlush are those that OpFlush asks for.
const accessFlush = AccessFlushGlobal | AccessFlushPersistent

// AccessOptional are the flags that a kernel or NIC without the feature
// ignores instead of refusing the MR (IB_UVERBS_ACCESS_OPTIONAL_RANGE).
// AccessRelaxedOrdering is the only one that kernels define, up to Linux 7.3. The caller chooses
// it for each MR. It can make bulk data faster. Leave it out where a program relies on the order
// of the NIC's writes, as one does that polls a flag which the peer writes after the data.
const AccessOptional Access = uverbs.AccessOptional

// String lists the flags: "local-write|remote-read", "none" for 0.
func (a Access) String() string {
	return uverbs.AccessNames(uint32(a))
}
