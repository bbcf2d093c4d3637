// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/memory"
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
	text := fmt.Sprintf("not connected: the link was lost, and nothing has got through for %v (PeerTimeout): %v", l.wait, l.err)
	if l.last != nil {
		text += "; the last attempt: " + l.last.Error()
	}
	return text
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
func (c *Conn) lostLink(why error, since time.Time) {
	c.e.tasks.Go(func() {
		if err := c.unlink(); err != nil {
			c.Works.Abort(errs.Join(why, err))
			return
		}
		ctx, cancel := context.WithDeadline(c.Works.Life(), since.Add(c.opt.PeerTimeout))
		defer cancel()
		last := c.awaitLink(ctx)
		select {
		case <-c.Works.Ready():
		default:
			c.Works.Abort(&lostError{c.opt.PeerTimeout, why, last})
		}
	})
}

// unlink ends the exchange and the link that were lost.
func (c *Conn) unlink() error {
	c.relinking.Lock()
	defer c.relinking.Unlock()
	if c.Works.Over() { // teardown ends them
		return c.Works.Gone()
	}
	c.mu.Lock()
	tcp, read := c.tcp, c.readDone
	c.mu.Unlock()
	cutOff(tcp)
	<-read
	err := c.Works.Unlink()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.cut, c.readDone = false, false, make(chan struct{})
	close(c.unlinked)
	return err
}

// cutOff closes a stream without a last message.
func cutOff(tcp net.Conn) {
	if t, ok := tcp.(*tls.Conn); ok {
		tcp = t.NetConn()
	}
	_ = tcp.Close()
}

// awaitLink returns when the connection has a link again, or when ctx ends. The side that has
// called calls again.
func (c *Conn) awaitLink(ctx context.Context) (last error) {
	if c.addr == "" {
		select {
		case <-c.Works.Ready():
		case <-ctx.Done():
		}
		return nil
	}
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		err := c.callAgain(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if errors.Is(err, ErrRejected) || errors.Is(err, ErrMalformed) { // the peer does not know the connection any more
			return last
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return last
		}
	}
}

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
		return errs.Join(err, c.Works.Unlink())
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
	c.Works.Lose(errCalledAgain)
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
	c.offered.forgetNames()
	c.exports.owed = 0
	for c.exports.withdrawn.Len() > 0 { // the peer has forgotten all names
		close(c.exports.withdrawn.Pop())
	}
	var again []*memory.RemoteBuffer
	var names []string
	for name, rb := range c.exports.names {
		if rb != nil {
			names, again = append(names, name), append(again, rb)
		}
	}
	c.unlinked, c.links = make(chan struct{}), c.links+1
	tcp := c.tcp
	_ = tcp.SetDeadline(time.Time{})
	c.reading = true
	c.e.tasks.Go(func() { c.readExchange(tcp) })
	c.e.tasks.Go(func() {
		for i, rb := range again {
			if c.offer(c.Works.Life(), names[i], rb) != nil {
				return // the connection has ended, or the link is lost again
			}
		}
	})
	return nil
}

// forgetNames drops all offers with a name.
func (o *offered) forgetNames() {
	for name := range o.names {
		o.named(name, nil)
	}
}
