// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/slab"
)

// AddLocal adds local memory, after the spans that were added before.
func (r *Request) AddLocal(s *memory.Span) error {
	write := r.Kind != operation.Write && r.Kind != operation.Send
	x, err := s.Use(r.home.NIC, r.Kind.String(), write)
	if err != nil {
		return err
	}
	if s.Length == 0 {
		x.Drop()
		return nil
	}
	if s.Length > math.MaxInt64-r.Length {
		x.Drop()
		return memory.OutOfRange(r.Kind.String(), "all local memory", s.Offset, s.Length, math.MaxInt64-r.Length)
	}
	r.operands = append(r.operands, x)
	r.local = append(r.local, x.Window)
	r.Length += s.Length
	if !write {
		r.staged = r.staged || x.Staged()
		r.ready = x.AppendReady(r.ready)
	}
	return nil
}

// AddWindow adds memory of the engine's own, which the request does not hold.
func (r *Request) AddWindow(w lower.Window) {
	r.local = append(r.local, w)
	r.Length += w.Len
}

// AddBytes makes p the bytes that a write or a message takes. They are copied at once.
func (r *Request) AddBytes(p []byte) error {
	if r.Kind != operation.Write {
		return &failure.Error{Op: r.Kind.String(), Detail: "only a write takes bytes", Err: unix.EOPNOTSUPP}
	}
	return r.inject(int64(len(p)), func(slot []byte) error { copy(slot, p); return nil })
}

// Inject copies the bytes of the local memory at once (FlagInject): from then on the request uses
// the copy.
func (r *Request) Inject() error {
	if len(r.ready) > 0 {
		return &failure.Error{
			Op: r.Kind.String(), Detail: operation.FlagInject.String() + " of a buffer with SetReady", Err: unix.EOPNOTSUPP,
			Remedy: "post it without inject, which would read the bytes before they are ready",
		}
	}
	if err := r.inject(r.Length, r.gather); err != nil {
		return err
	}
	for i := range r.operands {
		r.operands[i].Drop()
	}
	r.operands = r.operands[:0]
	return nil
}

// inject replaces the local memory by a slot of n bytes, which fill fills.
func (r *Request) inject(n int64, fill func(p []byte) error) error {
	if err := r.home.Slab.Fits(r.Kind.String(), n); err != nil {
		return err
	}
	x, err := r.home.Slab.Take()
	if err != nil {
		return err
	}
	r.slot, r.injected = x, true
	if err := x.Fill(n, fill); err != nil {
		return err
	}
	r.local, r.staged = r.local[:0], false
	if n > 0 {
		r.local = append(r.local, x.Window(n))
	}
	r.Length = n
	return nil
}

// gather copies the bytes of the local memory to p.
func (r *Request) gather(p []byte) error {
	for i := range r.operands {
		x := &r.operands[i]
		if err := x.Gather(p[:x.Len]); err != nil {
			return err
		}
		p = p[x.Len:]
	}
	return nil
}

// AddRemote adds the peer's memory, after the spans that were added before.
func (r *Request) AddRemote(s *memory.RemoteSpan) error {
	need := ibvfd.AccessRemoteRead
	switch r.Kind {
	case operation.Write:
		need = ibvfd.AccessRemoteWrite
	case operation.FetchAdd, operation.CompareSwap:
		need = ibvfd.AccessRemoteAtomic
	}
	readBack := r.Kind == operation.Write && r.Flags&operation.FlagDeliveryComplete != 0
	if readBack {
		need |= ibvfd.AccessRemoteRead
	}
	if err := s.Check(r.Kind.String(), need); err != nil {
		return err
	}
	if s.Length == 0 {
		return nil
	}
	if s.Length > math.MaxInt64-r.there {
		return memory.OutOfRange(r.Kind.String(), "all of the peer's memory", s.Offset, s.Length, math.MaxInt64-r.there)
	}
	r.there += s.Length
	several := len(r.bufs) > 0 && r.bufs[0] != s.Buf || s.Buf.Layout().DistinctSources() > 1
	if readBack && several {
		return &failure.Error{
			Op: r.Kind.String(), Detail: "delivered, to several buffers of the peer", Err: unix.EOPNOTSUPP,
			Remedy: "write to one at a time: reading back from one says nothing of the others",
		}
	}
	r.remote = append(r.remote, s.Window())
	r.bufs = append(r.bufs, s.Buf)
	return nil
}

// SetAtomic sets an atomic's numbers: the one to add or to compare with, and the one to swap in.
func (r *Request) SetAtomic(add, swap uint64) { r.add, r.swap = add, swap }

// SetData sets the data for the peer, if the request has FlagRemoteCQData.
func (r *Request) SetData(data uint64) error {
	if r.Flags&operation.FlagRemoteCQData == 0 {
		return nil
	}
	if data > math.MaxUint32 {
		return &failure.Error{Op: r.Kind.String(), Detail: fmt.Sprintf("data %#x", data), Remedy: "immediate data of a work request has 32 bits", Err: failure.ErrRange}
	}
	r.Data = uint32(data)
	return nil
}

// NeedResult gives an atomic without local memory a slot for the old value, which Value returns.
func (r *Request) NeedResult() error {
	if len(r.local) > 0 {
		return nil
	}
	x, err := r.home.Slab.Take()
	if err != nil {
		return err
	}
	r.slot, r.result = x, true
	r.AddWindow(x.Window(slab.ResultSize))
	return nil
}

// NeedByte gives a read of one byte, whose value does not matter, a slot for it.
func (r *Request) NeedByte() error {
	x, err := r.home.Slab.Take()
	if err != nil {
		return err
	}
	r.slot, r.result = x, true
	r.AddWindow(x.Window(1))
	return nil
}

// Prepare checks a request to which all memory has been added, before it is posted.
func (r *Request) Prepare() error {
	if err := r.check(); err != nil || r.Flags&operation.FlagDeliveryComplete == 0 {
		return err
	}
	return r.home.Slab.Need() // Delivered reads a byte into the slab's sink
}

func (r *Request) check() error {
	switch r.Kind {
	case operation.FetchAdd, operation.CompareSwap:
		return r.checkAtomic()
	case operation.Read, operation.Write:
		return r.matched()
	}
	return nil
}

// matched refuses an operation whose two sides have different lengths.
func (r *Request) matched() error {
	if r.there == r.Length {
		return nil
	}
	return &failure.Error{
		Op: r.Kind.String(), Err: failure.ErrRange,
		Detail: fmt.Sprintf("%d bytes here, %d at the peer", r.Length, r.there), Remedy: "both must be equal",
	}
}

// checkAtomic checks what a NIC would refuse.
func (r *Request) checkAtomic() error {
	if err := r.home.NIC.NeedAtomics(r.Kind.String()); err != nil {
		return err
	}
	if r.Length != slab.ResultSize || r.there != slab.ResultSize {
		return &failure.Error{
			Op: r.Kind.String(), Err: failure.ErrRange,
			Detail: fmt.Sprintf("%d bytes here, %d at the peer", r.Length, r.there), Remedy: "atomics have 8",
		}
	}
	x := lower.PiecesOf(r.remote)
	switch p, _ := x.Next(); {
	case p.Length != slab.ResultSize:
		return &failure.Error{Op: r.Kind.String(), Detail: "the peer's 8 bytes are not contiguous", Err: unix.EINVAL}
	case p.Addr%slab.ResultSize != 0:
		return &failure.Error{Op: r.Kind.String(), Device: r.bufs[0].String(), Detail: fmt.Sprintf("the 8 bytes are at the peer's address %#x", p.Addr), Remedy: "take 8 bytes whose address is a multiple of 8", Err: unix.EINVAL}
	case r.pieces() != 1:
		return &failure.Error{Op: r.Kind.String(), Detail: "the result's 8 bytes are not contiguous", Err: unix.EINVAL}
	}
	return nil
}
