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
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// A connection with EndpointOptions.Outlive outlives its link. The side that has called calls
// again, and names the connection in its hello; the listener finds the connection by that name.
// Each side closes its queue pairs before its hello: nothing of the old link lands after the
// hellos. The hellos have the numbers of messages that have arrived. Package workqueue then
// repeats what the other side may not have received. Keys stay valid.

// Times of calling again.
const (
	firstPause   = 5 * time.Millisecond
	mostPause    = time.Second // or an eighth of PeerTimeout, if that is less
	leastAttempt = time.Second // the time of an attempt is a third of PeerTimeout, if that is more
)

// errCalledAgain is the end of a link whose peer makes another one.
var errCalledAgain = fmt.Errorf("%w: the peer makes another link", ErrNotConnected)

// errPeerLost is the end of a link that the peer has lost.
var errPeerLost = fmt.Errorf("%w: the peer has lost the link", ErrNotConnected)

// errOther means that the listener at the address is not the one of the connection.
var errOther = fmt.Errorf("%w: another listener has answered", ErrRejected)

// lostError is the end of a connection whose link has not come back. It is ErrPeerGone.
type lostError struct {
	wait time.Duration
	err  error // of the link that was lost
	last error // of the last attempt to make another link; nil if there was none
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

// links are the links of a connection: one, or one after the other if it outlives them.
type links struct {
	c      *Conn
	addr   string     // the address that this side has called; "" if the peer has called
	making sync.Mutex // held while a link is made or ended

	// The Conn's mutex guards these.
	last    *link    // nil before the first; it may have ended before it carried an operation
	number  uint32   // of the last link that carried operations; the first is 0
	session uint64   // the connection's name for a listener; 0 if it ends with its link
	attempt net.Conn // the exchange for another link, on the side that calls; nil if none is made
}

// current returns the link; the last one if it has ended, nil before the first one.
func (s *links) current() *link {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.last
}

// name returns the connection's name, 0 if it does not outlive its links, and the number of the
// link after the last one that has had operations.
func (s *links) name() (session uint64, next uint32) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.session, s.number + 1
}

// outlive says that the connection outlives its links, under a name.
func (s *links) outlive(session uint64) {
	s.c.mu.Lock()
	s.session = session
	s.c.mu.Unlock()
	s.c.Works.Link.Outlive()
}

// lost is called when the link is lost, with the mutex of Works held.
func (s *links) lost(why error) {
	c := s.c
	c.e.tasks.Go(func() {
		ready, err := s.end()
		if err != nil {
			return // the connection has ended
		}
		linked, last := s.await(ready)
		for !linked && !c.Works.Over() && !hopeless(last) && c.keep() {
			c.Works.Link.GiveUp(&lostError{c.opt.PeerTimeout, why, last})
			linked, last = s.await(ready)
		}
		switch {
		case linked:
		case c.e.life.Err() != nil:
			c.Works.Abort(c.e.isClosed())
		default:
			c.Works.Abort(&lostError{c.opt.PeerTimeout, why, last})
		}
	})
}

// end ends the exchange and the link that were lost. ready is closed when there is another link,
// or the connection begins to end.
func (s *links) end() (ready <-chan struct{}, err error) {
	s.making.Lock()
	defer s.making.Unlock()
	c := s.c
	if c.Works.Over() { // teardown ends them
		return nil, c.Works.End.Gone()
	}
	c.mu.Lock()
	l := s.last
	tcp := l.tcp
	c.mu.Unlock()
	cutOff(tcp)
	<-l.read
	if err = c.Works.Link.Unlink(); err != nil {
		c.Works.Abort(err)
	}
	c.Offers.Unlinked()
	ready = c.Works.Ready()
	s.report(l)
	c.mu.Lock()
	defer c.mu.Unlock()
	l.close()
	return ready, err
}

// report reports that this side's queue pairs of a link are destroyed, and which messages they had.
func (s *links) report(l *link) {
	received, _ := s.c.Works.Link.Received()
	s.c.reportLost(RailReport{Rail: uint8(s.c.rail), Link: l.number, Received: received, Removed: s.c.e.nic.Device().Removed()})
}

// cutOff closes a stream without a last message.
func cutOff(tcp net.Conn) {
	if t, ok := tcp.(*tls.Conn); ok {
		tcp = t.NetConn()
	}
	_ = tcp.Close()
}

// hopeless reports whether the error of an attempt says that no other attempt can succeed.
func hopeless(err error) bool {
	return err != nil && (exchange.Forgotten(err) || errors.Is(err, errOther) || errors.Is(err, ErrMalformed))
}

// await returns when the connection has had a link again, or after PeerTimeout. The side that has
// called calls again.
func (s *links) await(ready <-chan struct{}) (linked bool, last error) {
	ctx, cancel := context.WithTimeout(s.c.Works.Life(), s.c.opt.PeerTimeout)
	defer cancel()
	if s.addr == "" {
		select {
		case <-ready:
			return true, nil
		case <-ctx.Done():
			return false, nil
		}
	}
	most := min(mostPause, max(s.c.opt.PeerTimeout/8, firstPause))
	for pause := firstPause; ; pause = min(2*pause, most) {
		err := s.callAgain(ctx)
		if err == nil {
			return true, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if hopeless(err) {
			return false, err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return false, last
		}
	}
}

// callAgain tries to make another link.
func (s *links) callAgain(ctx context.Context) error {
	s.making.Lock()
	defer s.making.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(s.c.opt.ConnectTimeout, max(s.c.opt.PeerTimeout/3, leastAttempt)))
	defer cancel()
	return s.undo(s.c.e.dialed(ctx, s.c, s.addr))
}

// undo ends a link that was not made because of err. A link that was made is lost later.
func (s *links) undo(err error) error {
	if err == nil {
		return nil
	}
	c := s.c
	c.mu.Lock()
	l := s.last
	made := l.reading
	c.mu.Unlock()
	if made {
		return nil
	}
	if end := c.Works.Link.Unlink(); end != nil {
		c.Works.Abort(end)
		err = errs.Join(err, end)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.close()
	return err
}

// called prepares another link for a caller that names a connection. If it returns a Conn, the
// caller must call answered.
func (e *Endpoint) called(ctx context.Context, raw net.Conn, theirs *exchange.Hello, peer PeerInfo) (*Conn, error) {
	e.mu.Lock()
	c := e.sessions[theirs.Session]
	e.mu.Unlock()
	if c == nil {
		return nil, unknown("that is not known")
	}
	if !sameCertificate(c.Peer().TLS, peer.TLS) {
		return nil, unknown("of another certificate")
	}
	if err := c.links.answer(ctx, raw); err != nil {
		return nil, err
	}
	return c, nil
}

// unknown returns the error of a caller that names a connection which cannot get another link.
func unknown(why string) error {
	return exchange.NewRejection(exchange.TextUnknown, fmt.Errorf("%w: a caller names a connection %s", ErrNotConnected, why))
}

// SamePeer reports whether two exchanges are with the same peer, as far as TLS says so.
func SamePeer(a, b PeerInfo) bool { return sameCertificate(a.TLS, b.TLS) }

// sameCertificate reports whether two exchanges are with the same peer, as far as TLS says so.
func sameCertificate(a, b *tls.ConnectionState) bool {
	if a == nil || b == nil {
		return a == b
	}
	return len(a.PeerCertificates) > 0 && len(b.PeerCertificates) > 0 && bytes.Equal(a.PeerCertificates[0].Raw, b.PeerCertificates[0].Raw)
}

// answer waits until another link can be made for a caller, and locks making. An earlier attempt
// is given up: its caller has done so.
func (s *links) answer(ctx context.Context, raw net.Conn) error {
	c := s.c
	if !c.Works.Link.Lose(errCalledAgain) {
		return unknown("that has ended")
	}
	for {
		c.mu.Lock()
		last := s.last
		if s.attempt != nil {
			_ = s.attempt.Close()
		}
		c.mu.Unlock()
		select {
		case <-last.ended:
		case <-c.ended:
			return unknown("that has ended")
		case <-ctx.Done():
			return errs.Ended(ctx)
		}
		s.making.Lock()
		c.mu.Lock()
		over := c.Works.Over()
		if s.last.over && !over {
			s.attempt = raw
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		s.making.Unlock()
		if over {
			return unknown("that has ended")
		}
	}
}

// answered ends an attempt of a caller.
func (s *links) answered(err error) error {
	err = s.undo(err)
	s.c.mu.Lock()
	s.attempt = nil
	s.c.mu.Unlock()
	s.making.Unlock()
	return err
}

// A rail whose link is lost gives its operations to other rails when both sides have destroyed their
// queue pairs of the link: each reports that to the other side, over another rail.

// reportLost reports that this side's queue pairs of a link are destroyed.
func (c *Conn) reportLost(r RailReport) {
	lost := c.opt.Rails.Lost
	if lost == nil {
		return
	}
	c.mu.Lock()
	group := c.group
	c.mu.Unlock()
	lost(group, r)
}

// keep reports whether a rail is to wait for another link after PeerTimeout.
func (c *Conn) keep() bool {
	keep := c.opt.Rails.Keep
	if keep == nil {
		return false
	}
	c.mu.Lock()
	group := c.group
	c.mu.Unlock()
	return keep(group)
}

// drain waits until no atomic that uses the keys for an ID is under way.
func (c *Conn) drain(id uint64) {
	drain := c.opt.Rails.Drain
	if drain == nil {
		return
	}
	c.mu.Lock()
	group, rail := c.group, c.rail
	c.mu.Unlock()
	drain(group, rail, id)
}

// takeReport takes the peer's report of any rail.
func (c *Conn) takeReport(body []byte) error {
	r, err := exchange.DecodeRailReport(body)
	if reported := c.opt.Rails.Reported; err == nil && reported != nil {
		c.mu.Lock()
		group := c.group
		c.mu.Unlock()
		reported(group, r)
	}
	return err
}

// Report sends this side's report of another rail to the peer. It returns false if the link is lost.
func (c *Conn) Report(ctx context.Context, r RailReport) bool {
	l := c.links.current()
	return l != nil && l.send(ctx, exchange.MsgRail, r.Encode(), nil) == nil
}

// Lose gives up the link with a number, if it is the last one.
func (c *Conn) Lose(number uint32) {
	c.mu.Lock()
	last := c.links.number == number && c.links.last.reading
	c.mu.Unlock()
	if last {
		c.Works.Link.Lose(errPeerLost)
	}
}

// LoseLast ends the link, if there is one.
func (c *Conn) LoseLast() {
	c.mu.Lock()
	number := c.links.number
	c.mu.Unlock()
	c.Lose(number)
}

// Evict ends the operations of a connection whose link is lost on both sides, as their reports say, so
// that other rails carry them out. It returns false if that is not so.
func (c *Conn) Evict(ours, theirs RailReport) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links.number != theirs.Link || c.links.last.reading {
		return false
	}
	evicted, err := c.Works.Link.Evict(theirs.Received, workqueue.Removed{Own: ours.Removed, Peers: theirs.Removed})
	if err != nil {
		c.Works.Abort(err)
	}
	return evicted
}
