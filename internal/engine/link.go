// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// link is a link of a connection: the exchange with the peer's host, and the path of the queue
// pairs, which Works has.
type link struct {
	c       *Conn
	number  uint32 // of the connection's links that have had operations; 0 is the first
	path    *ConnPath
	sending chan struct{} // a lock: the goroutine that has put a value into it may send a message
	read    chan struct{} // closed when the exchange is read no more, if it was read
	ended   chan struct{} // closed when another link may be made; not when the connection has ended

	// The Conn's mutex guards these.
	tcp     net.Conn
	reading bool // a goroutine reads the exchange, and closes read when it ends
	cut     bool // a message was sent in part: no more can follow
	over    bool // ended is closed
}

func newLink(c *Conn, number uint32, tcp net.Conn, path *ConnPath) *link {
	return &link{
		c: c, number: number, tcp: tcp, path: path,
		sending: make(chan struct{}, 1), read: make(chan struct{}), ended: make(chan struct{}),
	}
}

// start starts the operations on the link, and the goroutine that reads the peer's messages,
// unless the connection has begun to end. accepted reports whether the program knows the peer. The
// caller holds the mutex.
func (l *link) start(peer operation.Peer, accepted bool) error {
	c, err := l.c, error(nil)
	if l.number == 0 {
		err = c.Works.Up(peer, accepted)
	} else if err = c.Works.Link.Resume(); err == nil {
		c.Offers.Relinked(l.number)
		if linked := c.opt.Rails.Linked; linked != nil {
			linked(c.group, c.rail, l.number)
		}
	}
	if err != nil {
		return err
	}
	tcp := l.tcp
	_ = tcp.SetDeadline(time.Time{})
	c.links.number, l.reading = l.number, true
	c.e.tasks.Go(func() { l.readExchange(tcp) })
	return nil
}

// close says that the queue pairs are closed. The caller holds the mutex.
func (l *link) close() {
	l.reading = false
	if !l.over {
		l.over = true
		close(l.ended)
	}
}

// sendMessage sends a message of the exchange. It calls next, if not nil, just before it sends,
// with the mutex locked, in the order of the messages, with the number of the link.
//
// It does not send if next returns false. On a connection that outlives its links the message is
// sent again over the next one, unless next is set: then it is not needed there.
func (c *Conn) sendMessage(ctx context.Context, kind exchange.Kind, body []byte, next func(link uint32) bool) error {
	for {
		select {
		case <-c.Works.Ready():
		case <-ctx.Done():
			return errs.Ended(ctx)
		}
		l := c.links.current()
		if l == nil {
			return c.Works.End.Gone()
		}
		err := l.send(ctx, kind, body, next)
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

func (l *link) send(ctx context.Context, kind exchange.Kind, body []byte, next func(link uint32) bool) error {
	c := l.c
	select {
	case l.sending <- struct{}{}:
	case <-ctx.Done():
		return errs.Ended(ctx)
	}
	c.mu.Lock()
	tcp, err := l.tcp, c.Works.End.Refusal()
	if err == nil && !l.reading {
		err = errLinkLost
	}
	needed := err == nil && (next == nil || next(l.number))
	c.mu.Unlock()
	if needed {
		if err = write(ctx, tcp, kind, body); err != nil {
			c.mu.Lock()
			l.cut = true
			over := l.over
			c.mu.Unlock()
			<-l.sending
			if over || c.Works.Link.Lose(err) {
				return cmp.Or(errs.Ended(ctx), errLinkLost)
			}
			return l.cutShort(ctx, err)
		}
	}
	<-l.sending
	return err
}

// cutShort ends the connection after a message of the exchange was sent in part, and returns the
// reason. If the peer has ended the connection, the reader of the exchange detects the end, too,
// and waits for the answer of the peer's NIC, which is the cause then.
func (l *link) cutShort(ctx context.Context, err error) error {
	c := l.c
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
	why := c.Works.End.Hear(nil)
	if why == nil {
		why = errCut
	}
	c.Works.Abort(fmt.Errorf("%w: %w", why, err))
	return c.Works.End.Gone()
}

// write writes a message, until ctx ends.
func write(ctx context.Context, tcp net.Conn, kind exchange.Kind, body []byte) error {
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

// say sends a message of the goodbye, unless an earlier one was sent in part.
func (l *link) say(tcp net.Conn, k exchange.Kind, body []byte) {
	mu := &l.c.mu
	_ = tcp.SetWriteDeadline(time.Now().Add(byeWait)) // it also ends an offer that the peer does not take
	l.sending <- struct{}{}
	defer func() { <-l.sending }()
	_ = tcp.SetWriteDeadline(time.Now().Add(byeWait)) // the offer may have removed it
	mu.Lock()
	cut := l.cut
	mu.Unlock()
	if !cut && exchange.WriteMessage(tcp, k, body) != nil {
		mu.Lock()
		l.cut = true
		mu.Unlock()
	}
}

// part closes the exchange when the peer has sent its last message, too, or is silent. free
// reports that the NIC does not touch the memory any more.
func (l *link) part(tcp net.Conn, free bool) {
	if free {
		l.say(tcp, exchange.MsgGone, nil)
	}
	_ = tcp.SetReadDeadline(time.Now().Add(goneWait))
	<-l.read
	_ = tcp.Close()
}

// readExchange takes the peer's messages until the exchange ends. It calls OnReject if Accept
// has not returned the peer.
func (l *link) readExchange(tcp net.Conn) {
	c := l.c
	err := l.readMessages(tcp)
	switch {
	case err == nil:
	case !errors.Is(err, ErrMalformed) && c.Works.Link.Lose(lostExchange(err)):
		close(l.read)
		return
	case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET):
		c.leave(c.Works.End.Hear(errCut))
	case errors.Is(err, unix.ETIMEDOUT) || errors.Is(err, unix.EHOSTUNREACH):
		c.Works.Abort(&silentError{c.opt.PeerTimeout, err})
	default:
		c.Works.Abort(err)
	}
	close(l.read)
	<-c.ended
	c.mu.Lock()
	unknown, why, info := c.uninvited, c.Works.End.Gone(), c.info
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
func (l *link) readMessages(tcp net.Conn) error {
	c := l.c
	for said := false; ; {
		kind, body, err := exchange.ReadAny(tcp, exchange.MsgOffer, exchange.MsgForgot, exchange.MsgRail, exchange.MsgBye, exchange.MsgGone)
		if err != nil {
			return err
		}
		switch kind {
		case exchange.MsgOffer:
			err = c.Offers.Take(body)
		case exchange.MsgForgot:
			err = c.Offers.Confirmed()
		case exchange.MsgRail:
			err = c.takeReport(body)
		case exchange.MsgBye:
			if said {
				return &failure.Error{Op: "read an exchange", Detail: "a second bye", Err: ErrMalformed}
			}
			said = true
			why := c.Works.End.Hear(farewellOf(body))
			c.e.tasks.Go(func() { c.leave(why) })
		case exchange.MsgGone:
			c.mu.Lock()
			c.peerGone = true
			c.mu.Unlock()
			c.leave(c.Works.End.Hear(operation.ErrPeerGone))
			return nil
		}
		if err != nil {
			return err
		}
	}
}
