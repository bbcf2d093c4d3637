// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/engine"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rails"
	"github.com/gpurdma/gpurdma/internal/rma"
)

// oneNIC is a connection of an endpoint of one NIC. Messages are the program's own: a receive is
// posted for each.
type oneNIC struct {
	ep     *engine.Endpoint
	peer   operation.Peer
	local  [1]memory.Span // of the operation that is posted: so that none is allocated
	remote [1]memory.RemoteSpan
	path   *engine.ConnPath // when it was last asked for: it stays known after the end
}

// One returns the connection of an endpoint to a peer.
func One(ep *engine.Endpoint, peer operation.Peer) Link { return &oneNIC{ep: ep, peer: peer} }

func (o *oneNIC) Receive(into rails.Local, done any) error {
	return o.ep.Recv(spanOf(into), o.peer, done)
}

func (o *oneNIC) Begin(kind operation.Kind, here rails.Local, there rails.Remote, flags operation.Flags, done any) error {
	o.local[0] = spanOf(here)
	msg := rma.Msg{Local: o.local[:], Peer: o.peer, Context: done}
	if kind != operation.Send {
		o.remote[0] = there.On(0)
		msg.Remote = o.remote[:]
	}
	switch kind {
	case operation.Read:
		return o.ep.ReadMsg(msg, flags)
	case operation.Send:
		return o.ep.SendMsg(msg, flags)
	}
	return o.ep.WriteMsg(msg, flags)
}

func (o *oneNIC) Atomic(kind operation.Kind, result rails.Local, there rails.Remote, x, y uint64, done any) error {
	if kind == operation.FetchAdd {
		return o.ep.FetchAdd(spanOf(result), o.peer, there.On(0), x, done)
	}
	return o.ep.CompareSwap(spanOf(result), o.peer, there.On(0), x, y, done)
}

func (o *oneNIC) Take(ctx context.Context, list []operation.Completion) (int, error) {
	return o.ep.Wait(ctx, list)
}

func (o *oneNIC) Offer(ctx context.Context, here rails.Local, access ibvfd.Access) error {
	rb, err := o.ep.Share(o.peer, spanOf(here), access)
	if err != nil {
		return err
	}
	return o.ep.Offer(ctx, o.peer, rb)
}

func (o *oneNIC) Offered(ctx context.Context) (rails.Remote, error) {
	rb, err := o.ep.Offered(ctx, o.peer)
	if err != nil {
		return rails.Remote{}, err
	}
	return rails.Remote{First: rb, Len: rb.Size()}, nil
}

func (o *oneNIC) Gone(ctx context.Context) error { return o.ep.Lost(ctx, o.peer) }

func (o *oneNIC) Now() ([]RailState, error) {
	path, err := o.ep.ConnPath(o.peer)
	switch {
	case err == nil:
		o.path = &path
	case o.path == nil:
		return nil, err
	}
	sum := o.ep.Counts()
	return []RailState{{rails.State{Path: *o.path, Up: o.ep.Up(o.peer)}, sum.Total()}}, nil
}

func (o *oneNIC) Close() error {
	err := o.ep.Remove(o.peer)
	if errors.Is(err, engine.ErrNotConnected) {
		return nil
	}
	return err
}

// spanOf returns memory of the only NIC.
func spanOf(l rails.Local) memory.Span {
	return memory.Span{Buf: l.Bufs[0], Offset: l.Off, Length: l.Len}
}
