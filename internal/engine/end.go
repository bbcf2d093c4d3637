// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
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
	if !errors.As(cause, new(*silentError)) && !errors.As(cause, new(*lostError)) && (errors.Is(cause, os.ErrClosed) || errors.Is(cause, workqueue.ErrRemoved) || errors.Is(cause, operation.ErrPeerGone)) {
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
	why, unknown := c.Works.End.Cause()
	if !unknown {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.links.last; l != nil && l.reading { // it does not change any more
		c.mu.Unlock()
		select {
		case <-l.read:
		case <-time.After(byeWait + goneWait):
		}
		c.mu.Lock()
	}
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
		c.Works.Link.Poll()
	}
}

// lost waits for the end, and returns the reason.
func (c *Conn) lost(ctx context.Context) error {
	select {
	case <-c.ended:
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
	return c.Works.End.Gone()
}

// answerWait bounds how long a connection that the peer has ended waits for the answers of the
// peer's NIC. It waits only while operations are under way; the full time passes only if the
// peer has ended the connection for a reason of its own.
const (
	answerWait = 2 * time.Second
	answerLook = time.Millisecond
)

// drainBeforeAbort takes the completions of operations under way. A peer ends the connection when
// its NIC has refused an operation. The NIC's answer may arrive later than the peer's message
// over the exchange, and a flush before it would hide which operation was refused. Once the
// peer's queue pairs are destroyed, only answers that are on their way can arrive.
func (c *Conn) drainBeforeAbort() {
	over := time.Now().Add(answerWait)
	for gone := false; time.Now().Before(over); time.Sleep(answerLook) {
		c.Works.Link.Poll()
		c.mu.Lock()
		if c.peerGone && !gone {
			gone, over = true, time.Now().Add(workqueue.FlushWait)
		}
		c.mu.Unlock()
		if c.Works.Over() || c.Works.State().Outstanding == 0 {
			return
		}
	}
}

// teardown is the slow part of a connection's end, which begins when Works is aborted. It closes
// c.ended: all operations under way have completed then, with the cause or with the NIC's
// status, and the keys that the peer was given are withdrawn. The peer's offers that the program
// has not taken are dropped.
func (c *Conn) teardown() {
	defer c.e.tasks.Done()
	c.links.making.Lock() // no other link is made any more
	defer c.links.making.Unlock()
	cause, _ := c.Works.End.Cause()
	c.Offers.End()
	c.mu.Lock()
	l, uninvited, listener, session := c.links.last, c.uninvited, c.listener, c.links.session
	tcp, reading := net.Conn(nil), false
	if l != nil {
		tcp, reading = l.tcp, l.reading
	}
	c.mu.Unlock()
	c.e.mu.Lock()
	if listener != nil {
		listener.conns--
	}
	if uninvited || c.own { // the program does not know the peer, or knows its Conn
		c.e.table.forget(c.peer)
	}
	c.e.mu.Unlock()
	said := make(chan struct{})
	switch {
	case reading: // the peer gets the bye at once, while the link ends
		c.e.tasks.Go(func() {
			l.say(tcp, exchange.MsgBye, farewell(cause))
			close(said)
		})
		c.Works.End.AwaitReason(l.read)
	case tcp != nil:
		// The peer sees the end. TLS sends a close message, which may take time.
		c.e.tasks.Go(func() { _ = tcp.Close() })
	}
	c.Works.Link.End()
	c.withdraw()
	free := c.Works.Finish()
	c.e.mu.Lock()
	delete(c.e.live, c)
	if c.e.sessions[session] == c {
		delete(c.e.sessions, session)
	}
	c.Works.AddCounts(&c.e.ended) // they do not change any more
	c.e.mu.Unlock()
	c.mu.Lock()
	onEnd := c.onEnd
	c.finished = true
	c.mu.Unlock()
	if onEnd != nil {
		onEnd()
	}
	if reading {
		c.e.tasks.Go(func() {
			<-said
			l.part(tcp, free)
		})
	}
	close(c.ended)
	c.Offers.Wake()
}

// withdraw ends the keys that the peer was given. No keys are added any more.
func (c *Conn) withdraw() {
	c.mu.Lock()
	shares := c.shares
	c.shares = nil
	c.mu.Unlock()
	for s := range shares {
		_ = c.e.nic.End(s.keys.Withdraw)
	}
}
