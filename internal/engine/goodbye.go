// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
	"golang.org/x/sys/unix"
)

// Times of a goodbye.
const (
	byeWait  = time.Second     // to send one message of a goodbye
	goneWait = 2 * time.Second // for the peer's last message
)

// ErrPeerClosed means that the peer's program has closed the connection: nothing failed. It is
// ErrPeerGone, too.
var ErrPeerClosed error = closedByPeer{}

type closedByPeer struct{}

func (closedByPeer) Error() string { return "not connected: the peer has closed the connection" }

func (closedByPeer) Is(target error) bool {
	return target == operation.ErrPeerGone || target == ErrNotConnected
}

// errCut is the cause of an end for which the peer has sent no reason.
var errCut = fmt.Errorf("%w without a word: its process or its host has ended, or the network between", operation.ErrPeerGone)

// silentError is the end of a connection whose peer's host does not answer. It is ErrPeerGone.
type silentError struct {
	silence time.Duration
	err     error
}

func (e *silentError) Error() string {
	return fmt.Sprintf("not connected: the peer's host has not answered for %v (PeerTimeout): %v", e.silence, e.err)
}

func (e *silentError) Unwrap() error { return e.err }
func (e *silentError) Is(target error) bool {
	return target == operation.ErrPeerGone || target == ErrNotConnected
}

// farewell returns the reason that this side sends to the peer: none if its program has closed
// the connection, or the peer has ended it.
func farewell(cause error) []byte {
	if !errors.As(cause, new(*silentError)) && (errors.Is(cause, os.ErrClosed) || errors.Is(cause, workqueue.ErrRemoved) || errors.Is(cause, operation.ErrPeerGone)) {
		return nil
	}
	return []byte(exchange.Bounded(cause.Error()))
}

// farewellOf returns the cause of the end for the reason that the peer has sent. The peer's text
// is quoted, so that it brings no control characters to a terminal.
func farewellOf(body []byte) error {
	if len(body) == 0 {
		return ErrPeerClosed
	}
	return fmt.Errorf("%w: %q", operation.ErrPeerGone, body)
}

// leave ends a connection that the peer has ended, after the answers of the peer's NIC.
func (c *Conn) leave(why error) {
	c.drainBeforeAbort()
	c.Works.Abort(why)
}

// ErrOutcomeUnknown means that operations were under way when the connection ended, and that the
// peer has not confirmed its end: the peer's NIC may have carried them out, or may still do so.
var ErrOutcomeUnknown = operation.ErrOutcomeUnknown

// Close ends the connection. It withdraws work requests that the NIC does not have yet, waits for
// the others, for EndpointOptions.PeerTimeout at most, and sends the end to the peer. It returns
// nil if all work requests that the NIC had have completed, were refused by the peer's NIC, or
// cannot land any more because the peer has confirmed that its queue pairs are destroyed;
// otherwise ErrOutcomeUnknown. In any case the connection's resources are free then. Further
// calls return the same.
func (c *Conn) Close() error {
	c.mu.Lock()
	closing, first := c.closing, c.closing == nil
	if first {
		closing = make(chan struct{})
		c.closing = closing
	}
	c.mu.Unlock()
	if first {
		c.closeErr = c.close()
		close(closing)
	}
	<-closing
	return c.closeErr
}

func (c *Conn) close() error {
	c.mu.Lock()
	closed := c.isClosed()
	c.mu.Unlock()
	c.Works.Shut(closed)
	c.settle()
	c.Works.Abort(closed)
	<-c.ended
	why, unknown := c.Works.Cause()
	if !unknown {
		return nil
	}
	c.mu.Lock()
	read := c.readDone // it does not change any more
	c.mu.Unlock()
	select {
	case <-read:
	case <-time.After(byeWait + goneWait):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.peerGone:
		return nil
	case errors.Is(why, os.ErrClosed):
		return fmt.Errorf("close the connection: %w: the peer does not answer", ErrOutcomeUnknown)
	}
	return fmt.Errorf("close the connection: %w: %w", ErrOutcomeUnknown, why)
}

// isClosed returns the error of a connection that this side has closed. The caller holds the
// mutex.
func (c *Conn) isClosed() error {
	what := "connection"
	if c.info.Addr != nil {
		what += " to " + c.info.Addr.String()
	}
	return errs.Closed(what, ErrNotConnected)
}

// settle waits until no operation is under way.
func (c *Conn) settle() {
	for end := time.Now().Add(c.opt.PeerTimeout); time.Now().Before(end); time.Sleep(answerLook) {
		if s := c.Works.State(); c.Works.Over() || s.Posted == 0 || s.Link == nil {
			return
		}
		c.Works.Poll()
	}
}

// say sends a message of the goodbye, unless an earlier one was sent in part.
func (c *Conn) say(tcp net.Conn, k exchange.Kind, body []byte) {
	_ = tcp.SetWriteDeadline(time.Now().Add(byeWait)) // it also ends an offer that the peer does not take
	c.offering <- struct{}{}
	defer func() { <-c.offering }()
	_ = tcp.SetWriteDeadline(time.Now().Add(byeWait)) // the offer may have removed it
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if !cut && exchange.WriteMessage(tcp, k, body) != nil {
		c.mu.Lock()
		c.cut = true
		c.mu.Unlock()
	}
}

// part closes the exchange when the peer has sent its last message, too, or is silent.
func (c *Conn) part(tcp net.Conn, free bool) {
	if free { // the NIC does not touch the memory any more
		c.say(tcp, exchange.MsgGone, nil)
	}
	_ = tcp.SetReadDeadline(time.Now().Add(goneWait))
	<-c.readDone
	_ = tcp.Close()
}

// readExchange takes the peer's messages until the exchange ends. It calls OnReject if Accept
// has not returned the peer.
func (c *Conn) readExchange(tcp net.Conn) {
	c.mu.Lock()
	read := c.readDone
	c.mu.Unlock()
	err := c.readMessages(tcp)
	switch {
	case err == nil:
	case !errors.Is(err, ErrMalformed) && c.Works.Lose(lostExchange(err)):
		close(read)
		return
	case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET):
		c.leave(c.Works.Hear(errCut))
	case errors.Is(err, unix.ETIMEDOUT) || errors.Is(err, unix.EHOSTUNREACH):
		c.Works.Abort(&silentError{c.opt.PeerTimeout, err})
	default:
		c.Works.Abort(err)
	}
	close(read)
	<-c.ended
	c.mu.Lock()
	unknown, why, info := c.uninvited, c.Works.Gone(), c.info
	c.mu.Unlock()
	if unknown && c.opt.OnReject != nil && c.e.life.Err() == nil {
		c.opt.OnReject(info, fmt.Errorf("it was gone before it was accepted: %w", why))
	}
}

// lostExchange is why a link is lost whose exchange ends without a word.
func lostExchange(err error) error {
	if errors.Is(err, io.EOF) {
		return errCut
	}
	return fmt.Errorf("%w: %w", errCut, err)
}

// readMessages returns nil when the peer has sent its last message, and the connection is ending.
func (c *Conn) readMessages(tcp net.Conn) error {
	for said := false; ; {
		kind, body, err := exchange.ReadAny(tcp, exchange.MsgOffer, exchange.MsgForgot, exchange.MsgBye, exchange.MsgGone)
		if err != nil {
			return err
		}
		switch kind {
		case exchange.MsgOffer:
			err = c.takeOffer(body)
		case exchange.MsgForgot:
			err = c.confirmed()
		case exchange.MsgBye:
			if said {
				return &dmabuf.Error{Op: "read an exchange", Detail: "a second bye", Err: ErrMalformed}
			}
			said = true
			why := c.Works.Hear(farewellOf(body))
			c.e.tasks.Go(func() { c.leave(why) })
		case exchange.MsgGone:
			c.mu.Lock()
			c.peerGone = true
			c.mu.Unlock()
			c.leave(c.Works.Hear(operation.ErrPeerGone))
			return nil
		}
		if err != nil {
			return err
		}
	}
}
