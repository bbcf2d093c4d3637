// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"math"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Piece is memory that a NIC knows under one key.
type Piece struct {
	Addr   uint64 // of its first byte: the MR's IOVA plus the offset in the MR
	Length int64
	Key    uint32 // lkey or rkey
}

// Memory is a source of a layout, as pieces that follow one another: one for
// most buffers, several for a buffer of several dma-bufs. A layout that a NIC has
// registered itself (user-mode memory registration) is a Memory of one Piece, and
// the layout over it is contiguous.
type Memory []Piece

// Size is the memory's size in bytes.
func (m Memory) Size() int64 {
	var n int64
	for _, p := range m {
		n += p.Length
	}
	return n
}

// Limits are what a queue pair and its device allow in one work request.
type Limits struct {
	MaxSGE    int   // at least 1
	MaxMsg    int64 // bytes
	MaxInline int   // bytes; 0 unless the local memory is the host's, since the CPU copies them
}

// Lowering makes work requests of a transfer between two layouts. Each work
// request covers one contiguous piece of remote memory and as many local pieces
// as the limits allow. No other cut of the two runs, in their order, takes fewer
// work requests, with one exception: one piece has at most 4096 blocks, however many
// touch one another, so that a peer's layout cannot keep Next busy. Next allocates
// nothing, and the time that it takes grows with the number of blocks.
type Lowering struct {
	op     ibvfd.Opcode
	local  Pieces
	remote Pieces
	left   int64
	lim    Limits
	l, r   Piece // the rests of the current pieces
}

// maxSGEBytes bounds one SGE: its length has 32 bits.
const maxSGEBytes = math.MaxUint32

// Start begins a transfer by x, of windows that have been checked and have length
// bytes on either side. It allocates nothing.
func Start(x *Lowering, op ibvfd.Opcode, local, remote []Window, length int64, lim Limits) {
	*x = Lowering{}
	x.op, x.left, x.lim = op, length, lim
	x.local.list, x.remote.list = local, remote
}

// Next fills wrs with the next work requests, whose SGEs are taken from sges,
// and returns how many; 0 when all are made. ID, keys of the connection and
// immediate data are the caller's to add. sges must have room for MaxSGE: a
// work request is not cut short for want of them.
func (x *Lowering) Next(wrs []ibvfd.SendWR, sges []ibvfd.SGE) int {
	for i := range wrs {
		if x.left == 0 || len(sges) < x.lim.MaxSGE {
			return i
		}
		used := x.one(&wrs[i], sges)
		sges = sges[used:]
	}
	return len(wrs)
}

// Done reports whether all work requests are made.
func (x *Lowering) Done() bool { return x.left == 0 }

// one makes a work request and returns how many SGEs it took.
func (x *Lowering) one(wr *ibvfd.SendWR, sges []ibvfd.SGE) int {
	if x.r.Length == 0 {
		x.r, _ = x.remote.Next()
	}
	*wr = ibvfd.SendWR{Op: x.op, RemoteAddr: x.r.Addr, RKey: x.r.Key}
	room, n := min(x.r.Length, x.lim.MaxMsg), 0
	total := int64(0)
	for room > 0 && n < x.lim.MaxSGE {
		if x.l.Length == 0 {
			x.l, _ = x.local.Next()
		}
		k := min(room, x.l.Length, maxSGEBytes)
		sges[n] = ibvfd.SGE{Addr: x.l.Addr, Length: uint32(k), LKey: x.l.Key}
		n++
		x.l.Addr += uint64(k)
		x.l.Length -= k
		room -= k
		total += k
	}
	x.r.Addr += uint64(total)
	x.r.Length -= total
	x.left -= total
	wr.SGE = sges[:n:n]
	if total <= int64(x.lim.MaxInline) && x.op != ibvfd.OpRead {
		wr.Flags |= ibvfd.SendInline
	}
	return n
}
