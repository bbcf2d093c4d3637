// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"time"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// A connection with EndpointOptions.Outlive outlives its link. The side that has called calls
// again, and names the connection in its hello; the listener finds the connection by that name.
// Each side closes its queue pairs before its hello: nothing of the old link lands after the
// hellos. The hellos have the numbers of messages that have arrived. Package workqueue then
// repeats what the other side may not have received. Keys stay valid.

// Times of calling again.
const (
	firstPause   = 5 * time.Millisecond
	mostPause    = time.Second
	leastAttempt = time.Second // the time of an attempt is a third of PeerTimeout, if that is more
)

// errCalledAgain is why a link is given up whose peer makes another one.
var errCalledAgain = fmt.Errorf("%w: the peer makes another link", ErrNotConnected)

// lostError is the end of a connection whose link has not come back. It is ErrPeerGone.
type lostError struct {
	wait time.Duration
	err  error // why the link was lost
	last error // why the last attempt has failed; may be nil
}

func (l *lostError) Error() string {
	text := fmt.Sprintf("not connected: the link was lost, and no other one was made within %v (PeerTimeout): %v", l.wait, l.err)
	if l.last != nil {
		text += "; the last attempt: " + l.last.Error()
	}
	return text + "; dial anew when the path works, or raise PeerTimeout"
}

func (l *lostError) Unwrap() error { return l.err }
func (l *lostError) Is(target error) bool {
	return target == operation.ErrPeerGone || target == ErrNotConnected
}

// outlives says that the connection outlives its links, under a name.
func (c *Conn) outlives(session uint64) {
	c.mu.Lock()
	c.session = session
	c.mu.Unlock()
	c.Works.Outlive()
}

// lostLink is called when the link is lost, with the mutex of Works held.
func (c *Conn) lostLink(why error) {
	c.e.tasks.Go(func() {
		ready, err := c.unlink()
		if err != nil {
			return // it has ended
		}
		ctx, cancel := context.WithTimeout(c.Works.Life(), c.opt.PeerTimeout)
		defer cancel()
		linked, last := c.awaitLink(ctx, ready)
		switch {
		case linked:
		case c.e.life.Err() != nil:
			c.Works.Abort(c.e.isClosed())
		default:
			c.Works.Abort(&lostError{c.opt.PeerTimeout, why, last})
		}
	})
}

// unlink ends the exchange and the link that were lost. ready is closed when there is another link,
// or the connection begins to end.
func (c *Conn) unlink() (ready <-chan struct{}, err error) {
	c.relinking.Lock()
	defer c.relinking.Unlock()
	if c.Works.Over() { // teardown ends them
		return nil, c.Works.Gone()
	}
	c.mu.Lock()
	tcp, read := c.tcp, c.readDone
	c.mu.Unlock()
	cutOff(tcp)
	<-read
	if err = c.Works.Unlink(); err != nil {
		c.Works.Abort(err)
	}
	ready = c.Works.Ready()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.cut, c.readDone = false, false, make(chan struct{})
	c.offered.forgetNames() // the peer offers them again, but for those that it withdraws meanwhile
	close(c.unlinked)
	return ready, err
}

// cutOff closes a stream without a last message.
func cutOff(tcp net.Conn) {
	if t, ok := tcp.(*tls.Conn); ok {
		tcp = t.NetConn()
	}
	_ = tcp.Close()
}

// awaitLink returns when the connection has had a link again, or when ctx ends. The side that has
// called calls again.
func (c *Conn) awaitLink(ctx context.Context, ready <-chan struct{}) (linked bool, last error) {
	if c.addr == "" {
		select {
		case <-ready:
			return true, nil
		case <-ctx.Done():
			return false, nil
		}
	}
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		err := c.callAgain(ctx)
		if err == nil {
			return true, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if exchange.Forgotten(err) || errors.Is(err, errOther) || errors.Is(err, ErrMalformed) {
			return false, last
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return false, last
		}
	}
}

// errOther means that the listener at the address is not the one of the connection.
var errOther = fmt.Errorf("%w: another listener has answered", ErrRejected)

// callAgain tries to make another link.
func (c *Conn) callAgain(ctx context.Context) error {
	c.relinking.Lock()
	defer c.relinking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(c.opt.ConnectTimeout, max(c.opt.PeerTimeout/3, leastAttempt)))
	defer cancel()
	return c.unlinkAfter(c.e.dialed(ctx, c, c.addr))
}

// unlinkAfter ends a link that was not made because of err. A link that was made is lost later.
func (c *Conn) unlinkAfter(err error) error {
	if err == nil {
		return nil
	}
	c.mu.Lock()
	unlinked := c.unlinked
	c.mu.Unlock()
	select {
	case <-unlinked:
		if end := c.Works.Unlink(); end != nil {
			c.Works.Abort(end)
			err = errs.Join(err, end)
		}
		return err
	default:
		return nil
	}
}

// calledAgain prepares another link for a caller that names a connection. If it returns a Conn,
// relinking is locked. An earlier attempt is given up: its caller has done so.
func (e *Endpoint) calledAgain(ctx context.Context, raw net.Conn, theirs *exchange.Hello, peer PeerInfo) (*Conn, error) {
	e.mu.Lock()
	c := e.sessions[theirs.Session]
	e.mu.Unlock()
	unknown := func(why string) error {
		return exchange.NewRejection(exchange.TextUnknown, fmt.Errorf("%w: a caller names a connection %s", ErrNotConnected, why))
	}
	if c == nil {
		return nil, unknown("that is not known")
	}
	if !sameCertificate(c.Peer().TLS, peer.TLS) {
		return nil, unknown("of another certificate")
	}
	if !c.Works.Lose(errCalledAgain) {
		return nil, unknown("that has ended")
	}
	for {
		c.mu.Lock()
		unlinked := c.unlinked
		if c.attempt != nil {
			_ = c.attempt.Close()
		}
		c.mu.Unlock()
		select {
		case <-unlinked:
		case <-c.ended:
			return nil, unknown("that has ended")
		case <-ctx.Done():
			return nil, errs.Ended(ctx)
		}
		c.relinking.Lock()
		c.mu.Lock()
		if c.unlinked == unlinked && !c.Works.Over() {
			c.attempt = raw
			c.mu.Unlock()
			return c, nil
		}
		c.mu.Unlock()
		c.relinking.Unlock()
		if c.Works.Over() {
			return nil, unknown("that has ended")
		}
	}
}

// attempted ends an attempt of a caller.
func (c *Conn) attempted(err error) error {
	err = c.unlinkAfter(err)
	c.mu.Lock()
	c.attempt = nil
	c.mu.Unlock()
	c.relinking.Unlock()
	return err
}

// sameCertificate reports whether two exchanges are with the same peer, as far as TLS says so.
func sameCertificate(a, b *tls.ConnectionState) bool {
	if a == nil || b == nil {
		return a == b
	}
	return len(a.PeerCertificates) > 0 && len(b.PeerCertificates) > 0 && bytes.Equal(a.PeerCertificates[0].Raw, b.PeerCertificates[0].Raw)
}

// Explain adds to the error of an operation that has waited for too long that the link is lost.
func (c *Conn) Explain(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if why := c.Works.LostFor(); why != nil {
		return fmt.Errorf("%w; the link is lost: %w", err, why)
	}
	return err
}

// relink starts the operations on another link, and the goroutine that reads the exchange. What
// the two sides have offered each other by name is offered again.
func (c *Conn) relink() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Works.Relink(); err != nil {
		return err
	}
	c.exports.owed = 0
	for c.exports.withdrawn.Len() > 0 { // the peer has forgotten all names
		close(c.exports.withdrawn.Pop())
	}
	again := maps.Clone(c.exports.names)
	c.unlinked, c.links = make(chan struct{}), c.links+1
	tcp, link := c.tcp, c.links
	_ = tcp.SetDeadline(time.Time{})
	c.reading = true
	c.e.tasks.Go(func() { c.readExchange(tcp) })
	c.e.tasks.Go(func() {
		for name, rb := range again {
			if rb == nil { // Export or Unexport is under way
				continue
			}
			body, err := exchange.EncodeOffer(name, rb)
			if err == nil {
				err = c.sendMessage(c.Works.Life(), exchange.MsgOffer, body, func() bool { return c.links == link && c.exports.names[name] == rb })
			}
			if err != nil {
				return // the connection has ended
			}
		}
	})
	return nil
}
