// SPDX-License-Identifier: Apache-2.0

package ibvfd

import (
	"github.com/gpurdma/gpurdma/ibvfd/internal/enum"
)

// SGE is one piece of local memory.
type SGE struct {
	Addr   uint64 // address within the MR, counted from its IOVA
	Length uint32 // bytes
	LKey   uint32
}

// Opcode is the operation of a send work request. The numbers are those of enum
// ibv_wr_opcode.
type Opcode uint32

// The opcodes. UD queue pairs have OpSend and OpSendImm, RC ones all of them.
const (
	OpWrite       Opcode = 0 // RDMA WRITE
	OpWriteImm    Opcode = 1 // RDMA WRITE that also completes a receive, with Imm
	OpSend        Opcode = 2
	OpSendImm     Opcode = 3
	OpRead        Opcode = 4 // RDMA READ
	OpCompareSwap Opcode = 5 // 8 bytes, RemoteAddr aligned to 8
	OpFetchAdd    Opcode = 6 // 8 bytes, RemoteAddr aligned to 8
	OpLocalInv    Opcode = 7 // invalidate a memory window of type 2 of ours, by RKey
	OpSendInv     Opcode = 9 // SEND that invalidates one of the receiver's, by RKey
	// OpFlush makes the peer's NIC place the bytes of earlier WRITEs and atomics, in
	// FlushLength bytes from RemoteAddr on or in the whole MR, as far as Placement
	// says. It completes when that is done, moves nothing and has no SGEs. The remote
	// MR must allow the placement (AccessFlushGlobal, AccessFlushPersistent), and so
	// must the peer's queue pair (ConnectAttr.Access). Only host memory can, because
	// no kernel registers a dma-buf with these flags. See QPAttr.Flush.
	OpFlush Opcode = 14
	// OpAtomicWrite writes the 8 bytes of CompareAdd at once: no reader sees only some of
	// them; RemoteAddr is aligned to 8, and there are no SGEs. The remote MR must
	// allow WRITE. See QPAttr.AtomicWrite.
	OpAtomicWrite Opcode = 15
)

var opcodeNames = [...]string{"RDMA WRITE", "RDMA WRITE with immediate", "SEND", "SEND with immediate", "RDMA READ", "compare-and-swap", "fetch-and-add", "local invalidate", 9: "SEND with invalidate", 14: "FLUSH", 15: "atomic write"}

// String returns the operation's name: "RDMA WRITE".
func (o Opcode) String() string { return enum.Name(opcodeNames[:], int(o), "Opcode") }

// SendFlags modify a send work request. The numbers are those of enum
// ibv_send_flags.
type SendFlags uint32

// The send flags.
const (
	SendFence     SendFlags = 1 << 0 // wait for earlier READs and atomics
	SendSignaled  SendFlags = 1 << 1 // make a completion on success too; errors always do. See QPAttr.SignalEvery
	SendSolicited SendFlags = 1 << 2 // wake a receiver that waits for solicited events
	// SendInline copies the data while posting: no key is needed, and the memory
	// may be reused at once. The CPU copies from the addresses in the SGEs, so
	// they must be addresses of this process: of a host MR whose IOVA is its
	// address, never of a dma-buf or a device pointer. An SGE with the LKey of one
	// is refused, whatever its address, as is an address below 64 KiB. QPAttr.Inline
	// bounds the length.
	SendInline SendFlags = 1 << 3
)

// FlushPlacement says how far OpFlush pushes data. The numbers are those of enum ibv_placement_type. A
// work request may ask for both.
type FlushPlacement uint8

// The placements.
const (
	FlushGlobal     FlushPlacement = 1 << 0 // the peer's processors and devices see it
	FlushPersistent FlushPlacement = 1 << 1 // it survives a loss of power; for persistent memory
)

// atomicSize is the size of an atomic operation's operand, and the alignment of its address.
const atomicSize = 8

// lowest is an address below which a process has no memory. On x86 that is
// vm.mmap_min_addr, 64 KiB. On arm64 vm.mmap_min_addr is 32 KiB, and programs are
// loaded far above 64 KiB.
const lowest = 64 << 10

// foreign reports whether an SGE has an address below lowest, from which the CPU cannot copy.
func foreign(sges []SGE) bool {
	for i := range sges {
		if sges[i].Addr < lowest && sges[i].Length > 0 {
			return true
		}
	}
	return false
}

// SendWR is a send work request. The caller may change it and its SGE list once PostSend has returned.
// The memory that the SGEs name belongs to the NIC until the completion.
type SendWR struct {
	ID         uint64 // comes back in WC.ID
	Op         Opcode
	Flags      SendFlags
	SGE        []SGE
	RemoteAddr uint64 // counted from the remote MR's IOVA; a multiple of 8 for atomics
	RKey       uint32 // of the remote MR or memory window; with OpLocalInv and OpSendInv, what to invalidate
	Imm        uint32 // host byte order
	CompareAdd uint64 // what to compare with, to add, or to write atomically
	Swap       uint64

	// OpFlush only: bytes, 0 for the whole MR, and where they are to be.
	FlushLength uint32
	Placement   FlushPlacement

	// UD only: the way to the peer, its queue pair, and that one's Q_Key.
	AH   *AH
	QPN  uint32
	QKey uint32
}

// RecvWR is a receive work request. The caller may change it and its memory as with [SendWR].
type RecvWR struct {
	ID  uint64
	SGE []SGE
}
