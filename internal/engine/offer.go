// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// Offer sends a descriptor that Share made to the peer, over the connection's exchange; the
// peer's Offered returns it. A program may also send descriptors by its own means, encoded by
// MarshalBinary. An offer that is cut short, for example by the end of ctx, ends the
// connection.
func (e *Endpoint) Offer(ctx context.Context, to operation.Peer, rb *memory.RemoteBuffer) error {
	if rb == nil {
		return &failure.Error{Op: "offer", Detail: "no descriptor", Remedy: "give what Share returned, or a View of that", Err: unix.EINVAL}
	}
	c, err := e.connFor(to)
	if err != nil {
		return err
	}
	body, err := exchange.EncodeOffer("", rb)
	if err != nil {
		return err
	}
	if rb.Token() != c.token && rb.Token() != e.token {
		return &failure.Error{
			Op: "offer", Device: rb.String(), Detail: "its keys are of another connection", Err: operation.ErrStaleKey,
			Remedy: "Share with this peer, once for each connection, and offer what that returns",
		}
	}
	return c.sendMessage(ctx, exchange.MsgOffer, body, nil)
}

// Offered waits for a descriptor that the peer has offered, and returns it. Offers that were
// not taken are dropped when the connection ends.
func (e *Endpoint) Offered(ctx context.Context, from operation.Peer) (*memory.RemoteBuffer, error) {
	c, err := e.connFor(from)
	if err != nil {
		return nil, err
	}
	for {
		rb, arrived := c.Offers.Next()
		if rb != nil {
			return rb, nil
		}
		select {
		case <-c.ended:
			return nil, c.lost(context.Background())
		case <-arrived:
		case <-ctx.Done():
			return nil, errs.Ended(ctx)
		}
	}
}
