// SPDX-License-Identifier: Apache-2.0

package libibverbs

import (
	"structs"
	"unsafe"
)

// The structures of verbs_abi.h that Go fills and reads itself, in C memory.
// Pointers are uintptr: they are C's. abi_test.go compares the layouts.

// SGE is struct ibv_sge.
type SGE struct {
	_      structs.HostLayout
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWR is struct ibv_send_wr.
type SendWR struct {
	_          structs.HostLayout
	WRID       uint64
	Next       uintptr // set once, in C
	SGList     uintptr // set once, in C
	NumSGE     int32
	Opcode     uint32
	SendFlags  uint32
	Imm        uint32    // big endian; or invalidate_rkey, which is not
	RemoteAddr uint64    // wr.rdma.remote_addr, wr.atomic.remote_addr, wr.ud.ah
	RKey       [2]uint32 // wr.rdma.rkey and padding, wr.atomic.compare_add, or wr.ud.remote_qpn and remote_qkey
	Swap       uint64    // wr.atomic.swap
	AtomicRKey uint32    // wr.atomic.rkey
	_          uint32
	_          uint32 // qp_type
	_          uint32
	_          [6]uint64 // bind_mw, tso
}

// RecvWR is struct ibv_recv_wr.
type RecvWR struct {
	_      structs.HostLayout
	WRID   uint64
	Next   uintptr
	SGList uintptr
	NumSGE int32
	_      uint32
}

// WC is struct ibv_wc.
type WC struct {
	_         structs.HostLayout
	WRID      uint64
	Status    uint32
	Opcode    uint32
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32 // big endian; or invalidated_rkey, which is not
	QPNum     uint32
	SrcQP     uint32
	Flags     uint32
	PKeyIndex uint16
	SLID      uint16
	SL        uint8
	DLIDBits  uint8
	_         [2]uint8
}

// SetOperand sets wr.atomic.compare_add, which lies where rkey does.
func (w *SendWR) SetOperand(v uint64) { *(*uint64)(unsafe.Pointer(&w.RKey)) = v }
