// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package ibvfd

import "structs"

// The structures of verbs_abi.h that Go fills and reads itself, in C memory.
// Pointers are uintptr: they are C's. abi_test.go compares the layouts.

// abiSGE is struct ibv_sge.
type abiSGE struct {
	_      structs.HostLayout
	addr   uint64
	length uint32
	lkey   uint32
}

// abiSendWR is struct ibv_send_wr.
type abiSendWR struct {
	_          structs.HostLayout
	wrID       uint64
	next       uintptr // set once, in C
	sgList     uintptr // set once, in C
	numSGE     int32
	opcode     uint32
	sendFlags  uint32
	imm        uint32    // big endian; or invalidate_rkey, which is not
	remoteAddr uint64    // wr.rdma.remote_addr, wr.atomic.remote_addr, wr.ud.ah
	rkey       [2]uint32 // wr.rdma.rkey and padding, wr.atomic.compare_add, or wr.ud.remote_qpn and remote_qkey
	swap       uint64    // wr.atomic.swap
	atomicRKey uint32    // wr.atomic.rkey
	_          uint32
	_          uint32 // qp_type
	_          uint32
	_          [6]uint64 // bind_mw, tso
}

// abiRecvWR is struct ibv_recv_wr.
type abiRecvWR struct {
	_      structs.HostLayout
	wrID   uint64
	next   uintptr
	sgList uintptr
	numSGE int32
	_      uint32
}

// abiWC is struct ibv_wc.
type abiWC struct {
	_         structs.HostLayout
	wrID      uint64
	status    uint32
	opcode    uint32
	vendorErr uint32
	byteLen   uint32
	imm       uint32 // big endian; or invalidated_rkey, which is not
	qpNum     uint32
	srcQP     uint32
	wcFlags   uint32
	pkeyIndex uint16
	slid      uint16
	sl        uint8
	dlidBits  uint8
	_         [2]uint8
}
