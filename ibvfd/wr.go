// SPDX-License-Identifier: Apache-2.0

package ibvfd

// atomicSize is what atomics work on, and at multiples of.
const atomicSize = 8

// lowest is below all memory of a process: vm.mmap_min_addr, which is 64 KiB on x86,
// and 32 on arm64, where programs begin far above all the same.
const lowest = 64 << 10

// foreign reports whether the CPU cannot copy from there.
func foreign(sges []SGE) bool {
	for i := range sges {
		if sges[i].Addr < lowest && sges[i].Length > 0 {
			return true
		}
	}
	return false
}

// SendWR is a send work request. It and its SGE list may be reused once
// PostSend has returned; the memory that the SGEs name belongs to the NIC
// until the completion.
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

// RecvWR is a receive work request, under SendWR's rules.
type RecvWR struct {
	ID  uint64
	SGE []SGE
}
