// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Offer sends a descriptor that Share made to the peer, over the connection's exchange; the
// peer's Offered returns it. A program may also send descriptors by its own means, encoded by
// MarshalBinary. An offer that is cut short, for example by the end of ctx, ends the
// connection.
func (e *Endpoint) Offer(ctx context.Context, to operation.Peer, rb *memory.RemoteBuffer) error {
	if rb == nil {
		return &dmabuf.Error{Op: "offer", Detail: "no descriptor", Remedy: "give what Share returned, or a View of that", Err: unix.EINVAL}
	}
	c, err := e.connFor(to)
	if err != nil {
		return err
	}
	return c.offer(ctx, "", rb)
}

// offer sends a descriptor, under a name if that is not empty.
func (c *Conn) offer(ctx context.Context, name string, rb *memory.RemoteBuffer) error {
	e := c.e
	body, err := exchange.EncodeOffer(name, rb)
	if err != nil {
		return err
	}
	if rb.Token() != c.token && rb.Token() != e.token {
		return &dmabuf.Error{
			Op: "offer", Device: rb.String(), Detail: "its keys are of another connection", Err: operation.ErrStaleKey,
			Remedy: "Share with this peer, once for each connection, and offer what that returns",
		}
	}
	return c.sendMessage(ctx, exchange.MsgOffer, body, nil)
}

// sendMessage sends a message of the exchange. It calls next, if not nil, just before it sends,
// with the mutex locked, in the order of the messages.
//
// It does not send if next returns false. On a connection that outlives its links the message is
// sent again over the next one, unless next is set: then it is not needed there.
func (c *Conn) sendMessage(ctx context.Context, kind exchange.Kind, body []byte, next func() bool) error {
	for {
		err := c.sendOnce(ctx, kind, body, next)
		if !errors.Is(err, errLinkLost) {
			return err
		}
		if next != nil {
			return nil
		}
	}
}

// errLinkLost means that a message of the exchange was not sent, because the link is lost.
var errLinkLost = errors.New("the link is lost")

func (c *Conn) sendOnce(ctx context.Context, kind exchange.Kind, body []byte, next func() bool) error {
	select {
	case <-c.Works.Ready():
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
	select {
	case c.offering <- struct{}{}:
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
	c.mu.Lock()
	tcp, err := c.tcp, c.Works.Refusal()
	if err == nil && !c.reading {
		err = errLinkLost
	}
	needed := err == nil && (next == nil || next())
	c.mu.Unlock()
	if needed {
		if err = send(ctx, tcp, kind, body); err != nil {
			c.mu.Lock()
			c.cut = c.cut || c.tcp == tcp
			c.mu.Unlock()
			<-c.offering
			if c.Works.Lose(err) {
				return cmp.Or(errs.Ended(ctx), errLinkLost)
			}
			return c.cutShort(ctx, err)
		}
	}
	<-c.offering
	return err
}

// cutShort ends the connection after a message of the exchange was sent in part, and returns the
// reason. If the peer has ended the connection, the reader of the exchange detects the end, too,
// and waits for the answer of the peer's NIC, which is the cause then.
func (c *Conn) cutShort(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		c.Works.Abort(err)
		return err
	}
	patience := time.NewTimer(answerWait + workqueue.FlushWait)
	defer patience.Stop()
	select {
	case <-c.ended:
	case <-ctx.Done():
	case <-patience.C:
	}
	why := c.Works.Hear(nil)
	if why == nil {
		why = errCut
	}
	c.Works.Abort(fmt.Errorf("%w: %w", why, err))
	return c.Works.Gone()
}

// send writes a message, until ctx ends.
func send(ctx context.Context, tcp net.Conn, kind exchange.Kind, body []byte) error {
	ended := make(chan struct{})
	inTime := context.AfterFunc(ctx, func() {
		_ = tcp.SetWriteDeadline(time.Unix(1, 0))
		close(ended)
	})
	err := exchange.WriteMessage(tcp, kind, body)
	if !inTime() {
		<-ended
		_ = tcp.SetWriteDeadline(time.Time{})
		if err != nil {
			return errs.Join(err, errs.Ended(ctx))
		}
	}
	return err
}

// Offered waits for a descriptor that the peer has offered, and returns it. Offers that were
// not taken are dropped when the connection ends.
func (e *Endpoint) Offered(ctx context.Context, from operation.Peer) (*memory.RemoteBuffer, error) {
	c, err := e.connFor(from)
	if err != nil {
		return nil, err
	}
	for {
		c.mu.Lock()
		rb := c.offered.pop()
		c.mu.Unlock()
		if rb != nil {
			return rb, nil
		}
		select {
		case <-c.ended:
			return nil, c.lost(context.Background())
		case <-c.offered.arrived:
		case <-ctx.Done():
			return nil, errs.Ended(ctx)
		}
	}
}

// takeOffer takes an offer of the peer.
func (c *Conn) takeOffer(body []byte) error {
	name, rb, err := exchange.DecodeOffer(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.offered.ended {
		return nil // the connection has begun to end: the offer is dropped
	}
	if rb != nil {
		if err := c.Works.Permits(rb); err != nil {
			return err
		}
	} else {
		c.confirm()
	}
	return c.offered.take(name, rb)
}
