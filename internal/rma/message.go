// SPDX-License-Identifier: Apache-2.0

package rma

import (
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// Send sends a message, which a receive of the peer takes (fi_send). A message or a receive
// with more pieces than a work request may have is packed into host memory. With DirectOnly
// memory it completes with EOPNOTSUPP instead: the limit is known only when the connection is
// up.
func (c Calls) Send(from memory.Span, peer operation.Peer, context any) error {
	return c.SendMsg(Msg{Local: []memory.Span{from}, Peer: peer, Context: context}, 0)
}

// SendMsg sends several spans as one message, with flags (fi_sendmsg). Msg.Remote is not used.
func (c Calls) SendMsg(m Msg, flags operation.Flags) error {
	o, err := c.e.NewWork(operation.Send, flags, m.Context)
	if err != nil {
		return err
	}
	if err = o.SetData(m.Data); err == nil {
		err = addOrInject(o, m.Local)
	}
	return c.post(m.Peer, o, err)
}

// Recv posts a receive for a message of one peer, up to the span's length (fi_recv). Messages
// and writes with data take receives in order; such writes put no bytes into the span. A
// message that is longer than its receive ends the connection. With AutoReceive, Recv returns
// EINVAL.
func (c Calls) Recv(into memory.Span, peer operation.Peer, context any) error {
	return c.RecvV([]memory.Span{into}, peer, context)
}

// RecvV is Recv into several spans, one after the other (fi_recvv).
func (c Calls) RecvV(into []memory.Span, peer operation.Peer, context any) error {
	o, err := c.e.NewWork(operation.Recv, 0, context)
	if err != nil {
		return err
	}
	return c.post(peer, o, addLocal(o, into))
}

// FetchAdd adds to the 8 bytes at to, which must be aligned to 8, and puts their old value
// into the 8 bytes of result (fi_fetch_atomic of a sum). It is atomic with respect to other
// atomics of NICs. Numbers are in the hosts' byte order. If the NIC has no atomics, FetchAdd
// returns EOPNOTSUPP and posts nothing.
//
// With EndpointOptions.Selective it makes no completion unless it fails, as other operations
// without FlagCompletion: the result has arrived when a later write, message or atomic to that
// peer has completed. FetchAddMsg can ask for a completion of its own.
func (c Calls) FetchAdd(result memory.Span, peer operation.Peer, to memory.RemoteSpan, add uint64, context any) error {
	return c.atomic(operation.FetchAdd, []memory.Span{result}, peer, []memory.RemoteSpan{to}, add, 0, 0, context)
}

// FetchAddMsg is FetchAdd with flags (fi_fetch_atomicmsg): Msg.Local is the result, Msg.Remote
// the number to add to. Msg.Data is not used.
func (c Calls) FetchAddMsg(m Msg, add uint64, flags operation.Flags) error {
	return c.atomic(operation.FetchAdd, m.Local, m.Peer, m.Remote, add, 0, flags, m.Context)
}

// CompareSwap writes swap to the 8 bytes at to if they equal compare, and puts their old value
// into result (fi_compare_atomic of a swap). Its conditions and completions are FetchAdd's.
func (c Calls) CompareSwap(result memory.Span, peer operation.Peer, to memory.RemoteSpan, compare, swap uint64, context any) error {
	return c.atomic(operation.CompareSwap, []memory.Span{result}, peer, []memory.RemoteSpan{to}, compare, swap, 0, context)
}

// CompareSwapMsg is CompareSwap with flags (fi_compare_atomicmsg); its Msg is that of
// FetchAddMsg.
func (c Calls) CompareSwapMsg(m Msg, compare, swap uint64, flags operation.Flags) error {
	return c.atomic(operation.CompareSwap, m.Local, m.Peer, m.Remote, compare, swap, flags, m.Context)
}

// atomic has the slices as parameters: in a Msg, which keeps its context, they would be
// allocated.
func (c Calls) atomic(kind operation.Kind, result []memory.Span, peer operation.Peer, to []memory.RemoteSpan, add, swap uint64, flags operation.Flags, context any) error {
	o, err := c.e.NewWork(kind, flags, context)
	if err != nil {
		return err
	}
	o.SetAtomic(add, swap)
	if err = addLocal(o, result); err == nil {
		err = addRemote(o, to)
	}
	return c.post(peer, o, err)
}
