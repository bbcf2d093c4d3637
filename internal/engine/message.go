// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/slab"
)

// Send sends a message, which a receive of the peer takes (fi_send). A message or a receive
// with more pieces than a work request may have is packed into host memory. With DirectOnly
// memory it completes with EOPNOTSUPP instead: the limit is known only when the connection is
// up.
func (e *Endpoint) Send(from memory.Span, peer operation.Peer, context any) error {
	return e.SendMsg(Msg{Local: []memory.Span{from}, Peer: peer, Context: context}, 0)
}

// SendMsg sends several spans as one message, with flags (fi_sendmsg). Msg.Remote is not used.
func (e *Endpoint) SendMsg(m Msg, flags operation.Flags) error {
	o, err := e.start(operation.Send, flags, m.Context)
	if err != nil {
		return err
	}
	if err = o.setData(m.Data); err == nil {
		err = o.takeOrInject(e, m.Local)
	}
	return e.post(m.Peer, o, err)
}

// Recv posts a receive for a message of one peer, up to the span's length (fi_recv). Messages
// and writes with data take receives in order; such writes put no bytes into the span. A
// message that is longer than its receive ends the connection. With AutoReceive, Recv returns
// EINVAL.
func (e *Endpoint) Recv(into memory.Span, peer operation.Peer, context any) error {
	return e.RecvV([]memory.Span{into}, peer, context)
}

// RecvV is Recv into several spans, one after the other (fi_recvv).
func (e *Endpoint) RecvV(into []memory.Span, peer operation.Peer, context any) error {
	if e.opt.AutoReceive > 0 {
		return &dmabuf.Error{
			Op: operation.Recv.String(), Device: e.nic.Name(), Detail: "the endpoint posts its receives itself (AutoReceive)", Err: unix.EINVAL,
			Remedy: "make an endpoint without AutoReceive for those who send messages",
		}
	}
	o, err := e.start(operation.Recv, 0, context)
	if err != nil {
		return err
	}
	return e.post(peer, o, o.take(e, into...))
}

// FetchAdd adds to the 8 bytes at to, which must be aligned to 8, and puts their old value
// into the 8 bytes of result (fi_fetch_atomic of a sum). It is atomic with respect to other
// atomics of NICs. Numbers are in the hosts' byte order. If the NIC has no atomics, FetchAdd
// returns EOPNOTSUPP and posts nothing.
//
// With EndpointOptions.Selective it makes no completion unless it fails, as other operations
// without FlagCompletion: the result has arrived when a later write, message or atomic to that
// peer has completed. FetchAddMsg can ask for a completion of its own.
func (e *Endpoint) FetchAdd(result memory.Span, peer operation.Peer, to memory.RemoteSpan, add uint64, context any) error {
	return e.atomic(operation.FetchAdd, []memory.Span{result}, peer, []memory.RemoteSpan{to}, add, 0, 0, context)
}

// FetchAddMsg is FetchAdd with flags (fi_fetch_atomicmsg): Msg.Local is the result, Msg.Remote
// the number to add to. Msg.Data is not used.
func (e *Endpoint) FetchAddMsg(m Msg, add uint64, flags operation.Flags) error {
	return e.atomic(operation.FetchAdd, m.Local, m.Peer, m.Remote, add, 0, flags, m.Context)
}

// CompareSwap writes swap to the 8 bytes at to if they equal compare, and puts their old value
// into result (fi_compare_atomic of a swap). Its conditions and completions are FetchAdd's.
func (e *Endpoint) CompareSwap(result memory.Span, peer operation.Peer, to memory.RemoteSpan, compare, swap uint64, context any) error {
	return e.atomic(operation.CompareSwap, []memory.Span{result}, peer, []memory.RemoteSpan{to}, compare, swap, 0, context)
}

// CompareSwapMsg is CompareSwap with flags (fi_compare_atomicmsg); its Msg is that of
// FetchAddMsg.
func (e *Endpoint) CompareSwapMsg(m Msg, compare, swap uint64, flags operation.Flags) error {
	return e.atomic(operation.CompareSwap, m.Local, m.Peer, m.Remote, compare, swap, flags, m.Context)
}

// atomic has the slices as parameters: in a Msg, which keeps its context, they would be
// allocated.
func (e *Endpoint) atomic(kind operation.Kind, result []memory.Span, peer operation.Peer, to []memory.RemoteSpan, add, swap uint64, flags operation.Flags, context any) error {
	o, err := e.start(kind, flags, context)
	if err != nil {
		return err
	}
	o.add, o.swap = add, swap
	return e.post(peer, o, o.takeAtomic(e, result, to))
}

func (o *Work) takeAtomic(e *Endpoint, result []memory.Span, to []memory.RemoteSpan) error {
	if err := o.take(e, result...); err != nil {
		return err
	}
	for i := range to {
		if err := o.addRemote(ibvfd.AccessRemoteAtomic, &to[i]); err != nil {
			return err
		}
	}
	return o.checkAtomic(e)
}

// checkAtomic checks what a NIC would refuse.
func (o *Work) checkAtomic(e *Endpoint) error {
	if err := e.nic.NeedAtomics(o.kind.String()); err != nil {
		return err
	}
	if o.length != slab.ResultSize || o.there != slab.ResultSize {
		return &dmabuf.Error{
			Op: o.kind.String(), Err: dmabuf.ErrRange,
			Detail: fmt.Sprintf("%d bytes here, %d at the peer", o.length, o.there), Remedy: "atomics have 8",
		}
	}
	r := lower.PiecesOf(o.remote)
	switch p, _ := r.Next(); {
	case p.Length != slab.ResultSize:
		return &dmabuf.Error{Op: o.kind.String(), Detail: "the peer's 8 bytes are not contiguous", Err: unix.EINVAL}
	case p.Addr%slab.ResultSize != 0:
		return &dmabuf.Error{Op: o.kind.String(), Device: o.bufs[0].String(), Detail: fmt.Sprintf("the 8 bytes are at the peer's address %#x", p.Addr), Remedy: "take 8 bytes whose address is a multiple of 8", Err: unix.EINVAL}
	case o.pieces() != 1:
		return &dmabuf.Error{Op: o.kind.String(), Detail: "the result's 8 bytes are not contiguous", Err: unix.EINVAL}
	}
	return nil
}
