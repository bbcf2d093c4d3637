// SPDX-License-Identifier: Apache-2.0

package uverbs

import (
	"structs"
	"unsafe"

	"github.com/gpurdma/gpurdma/internal/ioctl"
)

// From include/uapi/rdma/rdma_user_ioctl_cmds.h.

const rdmaIoctlMagic = 0x1b // RDMA_IOCTL_MAGIC

// VerbsIoctl is RDMA_VERBS_IOCTL.
var VerbsIoctl = ioctl.IOWR(rdmaIoctlMagic, 1, uint32(unsafe.Sizeof(ioctlHdr{})))

const attrMandatory = 1 << 0 // UVERBS_ATTR_F_MANDATORY

// attr is struct ib_uverbs_attr.
type attr struct {
	_      structs.HostLayout
	attrID uint16
	len    uint16 // bytes that data points to, or holds; 0 for objects and descriptors
	flags  uint16
	data16 uint16 // union attr_data: elem_id of enums, else reserved
	data   uint64 // union: inline data, object handle, pointer, or descriptor (s64)
}

const (
	hdrSize  = uint16(unsafe.Sizeof(ioctlHdr{}))
	attrSize = uint16(unsafe.Sizeof(attr{}))
)

// ioctlHdr is struct ib_uverbs_ioctl_hdr without its flexible array.
type ioctlHdr struct {
	_         structs.HostLayout
	length    uint16 // header and attributes, bytes
	objectID  uint16
	methodID  uint16
	numAttrs  uint16
	reserved1 uint64
	driverID  uint32
	reserved2 uint32
}
