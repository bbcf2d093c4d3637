// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"github.com/gpurdma/gpurdma/internal/slab"
)

// Work is an operation between its posting and its completion.
type Work struct {
	kind    operation.Kind
	flags   operation.Flags
	context any
	sink    operation.Sink // nil: the endpoint's own list
	uses    atomic.Uint32
	length  int64
	there   int64 // bytes of the peer's memory
	data    uint32
	silent  bool // no completion, unless it fails
	auto    bool // an automatic receive (AutoReceive)
	queue   int

	letter letter // the message that it sends, or that follows its bytes

	ready  []func(context.Context) error // what says that the sources may be read
	cancel context.CancelFunc            // ends these
	life   context.Context               // the NIC gets nothing of it after its end; may be nil

	operands []memory.Operand
	local    []lower.Window // of the operands, or of the memory sent in their place
	remote   []lower.Window
	bufs     []*memory.RemoteBuffer
	add      uint64 // of an atomic: the number to add, or to compare with
	swap     uint64

	low      lower.Lowering
	last     lower.Piece // the remote memory of the last work request
	slot     slab.Slot   // of the slab, if injected, or if result
	injected bool
	result   bool           // an atomic's old value goes to the slot
	pack     *memory.Buffer // memory of a message with more pieces than a work request may have

	started, begun, made, ended bool // begun: the NIC has got a work request
	busy                        bool // slow work of this op is under way
	staged                      bool // the NIC reads staged memory, which must be synced first
	noting                      bool // only the message that follows the bytes is to be sent
	flushing                    bool // of delivery-complete: only the byte must be read back
	err                         error
	withdrawn                   error // why Cancel has withdrawn it, or the rest of it
}

// works are unused works.
type works struct {
	mu   sync.Mutex
	free []*Work
}

// newWork returns a work, possibly a recycled one.
func (e *Endpoint) newWork(kind operation.Kind, flags operation.Flags, context any) *Work {
	e.works.mu.Lock()
	var o *Work
	if n := len(e.works.free); n > 0 {
		o, e.works.free = e.works.free[n-1], e.works.free[:n-1]
	}
	e.works.mu.Unlock()
	if o == nil {
		o = new(Work)
	}
	o.kind, o.flags, o.context = kind, flags, context
	o.silent = e.opt.Selective && flags&operation.FlagCompletion == 0
	if kind == operation.Read {
		o.queue = rc.ReadQueue
	}
	return o
}

// recycle frees all that the op kept.
func (e *Endpoint) recycle(o *Work) {
	for i := range o.operands {
		o.operands[i].Drop()
	}
	if o.injected || o.result {
		e.slab.Put(o.slot)
	}
	if o.cancel != nil {
		o.cancel()
	}
	if o.pack != nil {
		o.pack.UnuseLater()
	}
	clear(o.operands)
	clear(o.local)
	clear(o.remote)
	clear(o.bufs)
	o.reset()
	e.works.mu.Lock()
	defer e.works.mu.Unlock()
	if len(e.works.free) < e.opt.Depth {
		e.works.free = append(e.works.free, o)
	}
}

// reset clears all but the memory of the slices, and the count of uses.
func (o *Work) reset() {
	o.uses.Add(1)
	o.kind, o.flags, o.context, o.sink = 0, 0, nil, nil
	o.length, o.there, o.data, o.silent, o.auto, o.queue = 0, 0, 0, false, false, 0
	o.letter, o.ready, o.cancel, o.life = letter{}, nil, nil, nil
	o.operands, o.local, o.remote, o.bufs = o.operands[:0], o.local[:0], o.remote[:0], o.bufs[:0]
	o.add, o.swap, o.last = 0, 0, lower.Piece{}
	o.slot, o.injected, o.result, o.pack = slab.Slot{}, false, false, nil
	o.started, o.begun, o.made, o.ended, o.busy, o.staged, o.flushing, o.noting = false, false, false, false, false, false, false, false
	o.err, o.withdrawn = nil, nil
}

// take adds local memory.
func (o *Work) take(e *Endpoint, spans ...memory.Span) error {
	for i := range spans {
		if err := o.addLocal(e, &spans[i]); err != nil {
			return err
		}
	}
	return nil
}

func (o *Work) addLocal(e *Endpoint, s *memory.Span) error {
	write := o.kind != operation.Write && o.kind != operation.Send
	x, err := s.Use(e.nic, o.kind.String(), write)
	if err != nil {
		return err
	}
	if s.Length == 0 {
		x.Drop()
		return nil
	}
	if s.Length > math.MaxInt64-o.length {
		x.Drop()
		return memory.OutOfRange(o.kind.String(), "all local memory", s.Offset, s.Length, math.MaxInt64-o.length)
	}
	o.operands = append(o.operands, x)
	o.local = append(o.local, x.Window)
	o.length += s.Length
	if !write {
		o.staged = o.staged || x.Staged()
		o.ready = x.AppendReady(o.ready)
	}
	return nil
}

// takeRemote adds the peer's memory, which must be as long as the local memory.
func (o *Work) takeRemote(need ibvfd.Access, spans ...memory.RemoteSpan) error {
	for i := range spans {
		if err := o.addRemote(need, &spans[i]); err != nil {
			return err
		}
	}
	return o.matched()
}

func (o *Work) addRemote(need ibvfd.Access, s *memory.RemoteSpan) error {
	if o.flags&operation.FlagDeliveryComplete != 0 && o.kind == operation.Write {
		need |= ibvfd.AccessRemoteRead
	}
	if err := s.Check(o.kind.String(), need); err != nil {
		return err
	}
	if s.Length == 0 {
		return nil
	}
	if s.Length > math.MaxInt64-o.there {
		return memory.OutOfRange(o.kind.String(), "all of the peer's memory", s.Offset, s.Length, math.MaxInt64-o.there)
	}
	o.there += s.Length
	several := len(o.bufs) > 0 && o.bufs[0] != s.Buf || s.Buf.Layout().DistinctSources() > 1
	if need&ibvfd.AccessRemoteRead != 0 && o.kind == operation.Write && several {
		return &dmabuf.Error{
			Op: o.kind.String(), Detail: "delivered, to several buffers of the peer", Err: unix.EOPNOTSUPP,
			Remedy: "write to one at a time: reading back from one says nothing of the others",
		}
	}
	o.remote = append(o.remote, s.Window())
	o.bufs = append(o.bufs, s.Buf)
	return nil
}

// matched refuses an operation whose two sides have different lengths.
func (o *Work) matched() error {
	if o.there == o.length {
		return nil
	}
	return &dmabuf.Error{
		Op: o.kind.String(), Err: dmabuf.ErrRange,
		Detail: fmt.Sprintf("%d bytes here, %d at the peer", o.length, o.there), Remedy: "both must be equal",
	}
}

// stage copies the bytes that the NIC will read into staging buffers. It takes long.
func (o *Work) stage(*Endpoint) error {
	for i := range o.operands {
		if err := o.operands[i].Sync(); err != nil {
			return err
		}
	}
	return nil
}

// inject replaces the work's local memory by a slot of n bytes, which fill fills.
func (o *Work) inject(e *Endpoint, n int64, fill func(p []byte) error) error {
	if err := e.slab.Fits(o.kind.String(), n); err != nil {
		return err
	}
	x, err := e.slab.Take()
	if err != nil {
		return err
	}
	o.slot, o.injected = x, true
	if err := x.Fill(n, fill); err != nil {
		return err
	}
	o.local, o.staged = o.local[:0], false
	if n > 0 {
		o.local = append(o.local, x.Window(n))
	}
	o.length = n
	return nil
}
