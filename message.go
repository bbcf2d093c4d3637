// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/lower"
)

// Send sends a message, which a receive of the peer takes (fi_send). A message
// of more pieces than a work request may have is packed into host memory, and so is a
// receive; with memory that is DirectOnly either fails, which its completion says, with
// EOPNOTSUPP: what a connection's work requests may have is known when there is one.
func (e *Endpoint) Send(from Span, peer Peer, context any) error {
	return e.SendMsg(Msg{Local: []Span{from}, Peer: peer, Context: context}, 0)
}

// SendMsg sends several spans as one message, under flags (fi_sendmsg).
// Msg.Remote is not used.
func (e *Endpoint) SendMsg(m Msg, flags Flags) error {
	o, err := e.start(OpSend, flags, m.Context)
	if err != nil {
		return err
	}
	if err = o.setData(m.Data); err == nil {
		err = o.takeOrInject(e, m.Local)
	}
	return e.post(m.Peer, o, err)
}

// Recv posts a receive for a message of one peer, of at most as many bytes
// (fi_recv). Receives are taken in order, by messages and by writes with data;
// the latter put nothing into the span. A message that is longer than its
// receive ends the connection. With AutoReceive it is EINVAL.
func (e *Endpoint) Recv(into Span, peer Peer, context any) error {
	return e.RecvV([]Span{into}, peer, context)
}

// RecvV is Recv into several spans, one after the other (fi_recvv).
func (e *Endpoint) RecvV(into []Span, peer Peer, context any) error {
	if e.opt.AutoReceive > 0 {
		return &dmabuf.Error{
			Op: OpRecv.String(), Device: e.nic.Name(), Detail: "the endpoint posts its receives itself (AutoReceive)", Err: unix.EINVAL,
			Remedy: "make an endpoint without AutoReceive for those who send messages",
		}
	}
	o, err := e.start(OpRecv, 0, context)
	if err != nil {
		return err
	}
	return e.post(peer, o, o.take(e, into...))
}

// FetchAdd adds to the 8 bytes at to, which are aligned to 8, as one step with
// respect to other atomics of NICs, and puts what was there before into the 8
// bytes of result (fi_fetch_atomic of a sum). Numbers are in the hosts' byte order. On
// a NIC that has no atomics it answers EOPNOTSUPP and posts nothing.
//
// With EndpointOptions.Selective it makes no completion unless it fails, as all that
// is not asked for one: the result is there when a later write, message or atomic to
// that peer has completed. FetchAddMsg asks for a completion of its own.
func (e *Endpoint) FetchAdd(result Span, peer Peer, to RemoteSpan, add uint64, context any) error {
	return e.atomic(OpFetchAdd, []Span{result}, peer, []RemoteSpan{to}, add, 0, 0, context)
}

// FetchAddMsg is FetchAdd under flags (fi_fetch_atomicmsg): Msg.Local is the result,
// Msg.Remote what is added to. Msg.Data is not used.
func (e *Endpoint) FetchAddMsg(m Msg, add uint64, flags Flags) error {
	return e.atomic(OpFetchAdd, m.Local, m.Peer, m.Remote, add, 0, flags, m.Context)
}

// CompareSwap puts swap where FetchAdd would add, if compare is there, and what
// was there before into result (fi_compare_atomic of a swap). It completes as
// FetchAdd does.
func (e *Endpoint) CompareSwap(result Span, peer Peer, to RemoteSpan, compare, swap uint64, context any) error {
	return e.atomic(OpCompareSwap, []Span{result}, peer, []RemoteSpan{to}, compare, swap, 0, context)
}

// CompareSwapMsg is CompareSwap under flags (fi_compare_atomicmsg), of a Msg as for
// FetchAddMsg.
func (e *Endpoint) CompareSwapMsg(m Msg, compare, swap uint64, flags Flags) error {
	return e.atomic(OpCompareSwap, m.Local, m.Peer, m.Remote, compare, swap, flags, m.Context)
}

// atomic takes the slices by themselves: in a Msg, which keeps its context, they would
// be allocated.
func (e *Endpoint) atomic(kind Op, result []Span, peer Peer, to []RemoteSpan, add, swap uint64, flags Flags, context any) error {
	o, err := e.start(kind, flags, context)
	if err != nil {
		return err
	}
	o.add, o.swap = add, swap
	return e.post(peer, o, o.takeAtomic(e, result, to))
}

func (o *op) takeAtomic(e *Endpoint, result []Span, to []RemoteSpan) error {
	if err := e.nic.atomics(o.kind.String()); err != nil {
		return err
	}
	here, there := int64(0), int64(0)
	for i := range result {
		here += result[i].Length
	}
	for i := range to {
		there += to[i].Length
	}
	const size = 8
	if here != size || there != size {
		return &dmabuf.Error{
			Op: o.kind.String(), Err: dmabuf.ErrRange,
			Detail: fmt.Sprintf("%d bytes here, %d at the peer", here, there), Remedy: "atomics have 8",
		}
	}
	if err := o.take(e, result...); err != nil {
		return err
	}
	if err := o.takeRemote(ibvfd.AccessRemoteAtomic, to...); err != nil {
		return err
	}
	r := lower.PiecesOf(o.remote)
	switch p, _ := r.Next(); {
	case p.Length != size:
		return &dmabuf.Error{Op: o.kind.String(), Detail: "the peer's 8 bytes are not contiguous", Err: unix.EINVAL}
	case p.Addr%size != 0:
		return &dmabuf.Error{Op: o.kind.String(), Detail: fmt.Sprintf("address %#x", p.Addr), Remedy: "align it to 8 bytes", Err: unix.EINVAL}
	case o.pieces() != 1:
		return &dmabuf.Error{Op: o.kind.String(), Detail: "the result's 8 bytes are not contiguous", Err: unix.EINVAL}
	}
	return nil
}
