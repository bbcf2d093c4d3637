// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"encoding/binary"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/slab"
)

// Home is the memory that an endpoint's requests use.
type Home struct {
	NIC  *memory.NIC
	Slab *slab.Slab
}

// Request is the memory of one operation, and its work requests. Free makes it reusable.
type Request struct {
	Kind   operation.Kind
	Flags  operation.Flags
	Length int64  // bytes of local memory; of a receive that has completed, the bytes received
	Data   uint32 // for the peer, or from it, with FlagRemoteCQData

	home  *Home
	there int64 // bytes of the peer's memory
	moved int64 // bytes that were copied between staged or packed memory and its source

	ready []func(context.Context) error // wait until the sources may be read

	operands []memory.Operand
	local    []lower.Window // of the operands, or of the memory sent in their place
	remote   []lower.Window
	bufs     []*memory.RemoteBuffer
	add      uint64 // of an atomic: the number to add, or to compare with
	swap     uint64

	low      lower.Lowering
	last     lower.Piece // the remote memory of the last work request
	slot     slab.Slot   // if injected, or if result
	injected bool
	result   bool           // an atomic's old value goes to the slot
	pack     *memory.Buffer // memory of a message with more pieces than a work request may have
	staged   bool           // the NIC reads staged memory, which must be synced first
	flushing bool           // of FlagDeliveryComplete: only the byte must be read back
	made     bool           // all work requests are made
}

// Start makes an empty request an operation.
func (r *Request) Start(h *Home, kind operation.Kind, flags operation.Flags) {
	r.home, r.Kind, r.Flags = h, kind, flags
}

// Free ends the use of all memory, and empties the request; it keeps the memory of its slices. It
// may be called with a lock held.
func (r *Request) Free() {
	for i := range r.operands {
		r.operands[i].Drop()
	}
	if r.injected || r.result {
		r.home.Slab.Put(r.slot)
	}
	if r.pack != nil {
		r.pack.UnuseLater()
	}
	clear(r.operands)
	clear(r.local)
	clear(r.remote)
	clear(r.bufs)
	r.reset()
}

// reset clears all but the memory of the slices.
func (r *Request) reset() {
	r.Kind, r.Flags, r.Length, r.Data = 0, 0, 0, 0
	r.home, r.there, r.moved, r.ready = nil, 0, 0, nil
	r.operands, r.local, r.remote, r.bufs = r.operands[:0], r.local[:0], r.remote[:0], r.bufs[:0]
	r.add, r.swap, r.last = 0, 0, lower.Piece{}
	r.slot, r.injected, r.result, r.pack = slab.Slot{}, false, false, nil
	r.staged, r.flushing, r.made = false, false, false
}

// Rewind makes Begin and Next start again.
func (r *Request) Rewind() {
	r.low, r.last, r.flushing, r.made = lower.Lowering{}, lower.Piece{}, false, false
}

// Ready returns the functions that wait until the sources may be read.
func (r *Request) Ready() []func(context.Context) error { return r.ready }

// Staged reports whether Stage must run before the NIC reads the memory.
func (r *Request) Staged() bool { return r.staged }

// Copied returns the number of bytes that Stage, Pack and Arrive have copied.
func (r *Request) Copied() int64 { return r.moved }

// Remotes returns the peer's buffers.
func (r *Request) Remotes() []*memory.RemoteBuffer { return r.bufs }

// Value returns the old value of an atomic that has no memory for it, and 0 for others.
func (r *Request) Value() uint64 {
	if !r.result {
		return 0
	}
	return binary.NativeEndian.Uint64(r.slot.Bytes(slab.ResultSize))
}

// Received takes the completion of a receive.
func (r *Request) Received(wc *ibvfd.WC) {
	r.Length = int64(wc.ByteLen)
	r.Flags &^= operation.FlagRemoteCQData
	if wc.Flags&ibvfd.WCWithImm != 0 {
		r.Flags |= operation.FlagRemoteCQData
		r.Data = wc.Imm
	}
	if wc.Opcode == ibvfd.WCOpRecvWriteImm {
		r.Kind = operation.RemoteWrite
	}
}
