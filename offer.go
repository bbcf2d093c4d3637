// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
)

// Offer sends a descriptor that Share made to the peer, over the connection's
// exchange; the peer's Offered returns it. A program may send descriptors by
// its own means as well, as MarshalBinary encodes them. An offer that is cut
// short, be it by the end of ctx, ends the connection.
func (e *Endpoint) Offer(ctx context.Context, to Peer, rb *RemoteBuffer) error {
	wire, err := rb.MarshalBinary()
	if err != nil {
		return err
	}
	e.mu.Lock()
	c, err := e.connFor(to)
	e.mu.Unlock()
	if err != nil {
		return err
	}
	if rb.token != c.token && rb.token != e.token {
		return &dmabuf.Error{
			Op: "offer", Device: fmt.Sprintf("remote buffer %x", rb.id), Detail: "its keys are of another connection", Err: ErrStaleKey,
			Remedy: "Share with this peer, once for each connection, and offer what that returns",
		}
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case c.offering <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.offering }()
	e.mu.Lock()
	tcp, err := c.tcp, c.refusal()
	e.mu.Unlock()
	if err != nil {
		return err
	}
	if err = send(ctx, tcp, wire); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		c.abort(err) // part of it may be on its way
	}
	return err
}

// send writes an offer, as long as ctx lasts.
func send(ctx context.Context, tcp net.Conn, wire []byte) error {
	ended := make(chan struct{})
	inTime := context.AfterFunc(ctx, func() {
		_ = tcp.SetWriteDeadline(time.Unix(1, 0))
		close(ended)
	})
	err := writeMessage(tcp, msgOffer, wire)
	if !inTime() {
		<-ended
		_ = tcp.SetWriteDeadline(time.Time{})
		if err != nil {
			return joined(err, ctx.Err())
		}
	}
	return err
}

// Offered waits for a descriptor that the peer has offered. Those that nobody has
// taken end with the connection.
func (e *Endpoint) Offered(ctx context.Context, from Peer) (*RemoteBuffer, error) {
	e.mu.Lock()
	c, err := e.connFor(from)
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for {
		e.mu.Lock()
		if c.offers.len() > 0 {
			rb := c.offers.pop()
			c.offerBytes -= rb.weight()
			if c.offers.len() > 0 {
				c.tell() // for another who waits
			}
			e.mu.Unlock()
			return rb, nil
		}
		err := c.refusal()
		e.mu.Unlock()
		if err != nil {
			c.tell()
			return nil, err
		}
		select {
		case <-c.offered:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tell wakes one who waits for offers.
func (c *conn) tell() {
	select {
	case c.offered <- struct{}{}:
	default:
	}
}

// maxOffered bounds the memory that a peer's offers take until somebody asks
// for them.
const maxOffered = 16 << 20

// weight is about how much memory a descriptor takes.
func (r *RemoteBuffer) weight() int {
	n := 256
	for _, s := range r.spaces {
		n += 64 + 32*len(s.Memory)
	}
	return n + r.layout.Weight()
}

// takeOffer reads one.
func (e *Endpoint) takeOffer(c *conn, tcp net.Conn) error {
	body, err := readMessage(tcp, msgOffer)
	if err != nil {
		return err
	}
	rb := new(RemoteBuffer)
	if err := rb.UnmarshalBinary(body); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := c.refusal(); err != nil { // it was read as the connection ended
		return err
	}
	if err := c.permits(rb); err != nil {
		return err
	}
	if c.offerBytes += rb.weight(); c.offerBytes > maxOffered {
		return &dmabuf.Error{Op: "take an offer", Detail: fmt.Sprintf("more than %d bytes that nobody asked for", maxOffered), Err: dmabuf.ErrLimit}
	}
	c.offers.push(rb)
	c.tell()
	return nil
}
