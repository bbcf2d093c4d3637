// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// op is an operation between its posting and its completion.
type op struct {
	kind    Op
	flags   Flags
	context any
	length  int64
	data    uint32
	silent  bool // no completion, unless it fails
	auto    bool // an automatic receive (AutoReceive)
	queue   int

	operands []operand
	local    []lower.Window // of the operands, or of the memory sent in their place
	remote   []lower.Window
	bufs     []*RemoteBuffer
	add      uint64 // of an atomic: the number to add, or to compare with
	swap     uint64

	low      Lowering
	last     Piece // the remote memory of the last work request
	slot     int   // of the slab, if injected
	injected bool
	pack     *Buffer // memory of a message with more pieces than a work request may have

	started, made, ended bool
	busy                 bool // slow work of this op is under way
	staged               bool // the NIC reads staged memory, which must be synced first
	flushing             bool // of delivery-complete: only the byte must be read back
	err                  error
}

// ops are unused operations.
type ops struct {
	mu   sync.Mutex
	free []*op
}

// newOp returns an op, possibly a recycled one.
func (e *Endpoint) newOp(kind Op, flags Flags, context any) *op {
	e.ops.mu.Lock()
	var o *op
	if n := len(e.ops.free); n > 0 {
		o, e.ops.free = e.ops.free[n-1], e.ops.free[:n-1]
	}
	e.ops.mu.Unlock()
	if o == nil {
		o = new(op)
	}
	o.kind, o.flags, o.context = kind, flags, context
	o.silent = e.opt.Selective && flags&FlagCompletion == 0
	if kind == OpRead {
		o.queue = rc.ReadQueue
	}
	return o
}

// recycle frees all that the op kept.
func (e *Endpoint) recycle(o *op) {
	for i := range o.operands {
		o.operands[i].drop()
	}
	if o.injected {
		e.slab.put(o.slot)
	}
	if o.pack != nil {
		o.pack.core.unuseLater()
	}
	clear(o.operands)
	clear(o.local)
	clear(o.remote)
	clear(o.bufs)
	operands, local, remote, bufs := o.operands[:0], o.local[:0], o.remote[:0], o.bufs[:0]
	*o = op{} // assigned in place: a literal with these fields would be allocated elsewhere, and copied
	o.operands, o.local, o.remote, o.bufs = operands, local, remote, bufs
	e.ops.mu.Lock()
	defer e.ops.mu.Unlock()
	if len(e.ops.free) < e.opt.Depth {
		e.ops.free = append(e.ops.free, o)
	}
}

// take adds local memory.
func (o *op) take(e *Endpoint, spans ...Span) error {
	write := o.kind != OpWrite && o.kind != OpSend
	for _, s := range spans {
		x, err := s.take(e.nic, o.kind, write)
		if err != nil {
			return err
		}
		if s.Length == 0 {
			x.drop()
			continue
		}
		if s.Length > math.MaxInt64-o.length {
			x.drop()
			return outOfRange(o.kind.String(), s.Offset, s.Length, math.MaxInt64-o.length)
		}
		o.operands = append(o.operands, x)
		o.local = append(o.local, x.Window)
		o.length += s.Length
		o.staged = o.staged || !write && x.isStaged()
	}
	return nil
}

// takeRemote adds the peer's memory, which must be as long as the local memory.
func (o *op) takeRemote(need ibvfd.Access, spans ...RemoteSpan) error {
	if o.flags&FlagDeliveryComplete != 0 && o.kind == OpWrite {
		need |= ibvfd.AccessRemoteRead
	}
	total := int64(0)
	for i := range spans {
		s := &spans[i]
		if err := s.check(o.kind, need); err != nil {
			return err
		}
		if s.Length == 0 {
			continue
		}
		if s.Length > math.MaxInt64-total {
			return outOfRange(o.kind.String(), s.Offset, s.Length, math.MaxInt64-total)
		}
		total += s.Length
		several := len(o.bufs) > 0 && o.bufs[0] != s.Buf || s.Buf.layout.DistinctSources() > 1
		if need&ibvfd.AccessRemoteRead != 0 && o.kind == OpWrite && several {
			return &dmabuf.Error{
				Op: o.kind.String(), Detail: "delivery-complete to several buffers of the peer", Err: unix.EOPNOTSUPP,
				Remedy: "write to one at a time: reading back from one says nothing of the others",
			}
		}
		o.remote = append(o.remote, s.window())
		o.bufs = append(o.bufs, s.Buf)
	}
	if total != o.length {
		return &dmabuf.Error{
			Op: o.kind.String(), Err: dmabuf.ErrRange,
			Detail: fmt.Sprintf("%d bytes here, %d at the peer", o.length, total),
		}
	}
	return nil
}

// stage copies the bytes that the NIC will read into staging buffers. It takes long.
func (o *op) stage(*Endpoint) error {
	for i := range o.operands {
		x := &o.operands[i]
		if err := x.staged(x.Len, (*stagingBuffer).sync); err != nil {
			return err
		}
	}
	return nil
}
