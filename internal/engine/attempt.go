// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/handshake"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// attempt makes one link of a connection, over a TCP or rdma_cm stream, which it takes over. Both
// sides use it; the steps are in run.
type attempt struct {
	e        *Endpoint
	raw      net.Conn
	opt      *EndpointOptions
	host     string          // whose certificate a listener must have
	caller   *calling        // nil on the side that has called
	c        *Conn           // on a listener's side, nil before the caller's hello
	messages *mailbox.Shared // of the first rail

	again        bool     // the connection has had a link
	tcp          net.Conn // raw, once it is protected
	attr         rc.Attr
	ours, theirs exchange.Hello
	addrs        []netip.Addr // of the peer's NICs
	peer         PeerInfo
	queue        *cqueue.Queue
	pairs        rc.Link
	path         *ConnPath
	link         *link // nil until the connection has the queue pairs
}

// run makes the link, until ctx ends.
func (a *attempt) run(ctx context.Context) (err error) {
	a.opt.keep.Apply(a.raw)
	late := make(chan struct{})
	inTime := context.AfterFunc(ctx, func() {
		_ = a.raw.SetDeadline(time.Unix(1, 0))
		close(late)
	})
	defer func() {
		// The function above may be setting the deadline right now.
		if !inTime() {
			<-late
			if err == nil {
				err = errs.Ended(ctx)
			}
		}
		if err != nil {
			err = a.failed(err)
		}
	}()
	if err := a.choose(ctx); err != nil {
		return err
	}
	if err := a.protect(ctx); err != nil {
		return err
	}
	if a.caller != nil {
		if err := a.hear(ctx); err != nil {
			return err
		}
	}
	if err := a.open(); err != nil {
		return err
	}
	err = a.greet(ctx)
	if err != nil && a.link == nil { // otherwise the connection's end closes the queue pairs
		_ = a.e.nic.End(a.pairs.Close)
		a.queue.Release(a.opt.room())
	}
	return err
}

// failed ends the stream, and tells a caller why.
func (a *attempt) failed(err error) error {
	if a.caller != nil {
		if a.tcp != nil {
			a.caller.l.reject(a.tcp, a.theirs != exchange.Hello{}, err)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			err = fmt.Errorf("the caller has hung up: %w", err)
		}
		if a.peer.Addr != nil {
			err = &knownCaller{a.peer, err}
		}
	}
	_ = a.raw.Close()
	return err
}

// choose says what the choice of the GID depends on.
func (a *attempt) choose(ctx context.Context) error {
	a.attr = rc.Attr{Connect: a.opt.Connect, PKey: a.opt.PKey}
	if s, ok := a.raw.(*cmstream.Stream); ok {
		if err := s.Establish(ctx); err != nil {
			return err
		}
		path, err := s.Path()
		if err != nil {
			return err
		}
		a.attr.Path = &path
	}
	a.attr.GID = rc.GIDSelector{Wish: a.opt.GID, Port: a.opt.Port}
	a.attr.GID.Ends(a.raw)
	return nil
}

// protect encrypts the exchange.
func (a *attempt) protect(ctx context.Context) error {
	through := a.raw
	if a.caller != nil {
		through = a.caller.Caller
	}
	tcp, err := a.opt.protection().Protect(ctx, through, a.host, a.caller == nil)
	if err != nil {
		if a.caller != nil && errors.As(err, new(tls.RecordHeaderError)) { // the caller does not speak TLS: it can read a plaintext reason
			a.caller.l.reject(a.raw, false, err)
		}
		return err
	}
	a.tcp = tcp
	return nil
}

// hear reads a caller's hello, and finds its connection, or makes one.
func (a *attempt) hear(ctx context.Context) (err error) {
	a.caller.Advance(handshake.Hello)
	if err := exchange.ReadHello(a.tcp, &a.theirs); err != nil {
		return err
	}
	a.caller.Advance(handshake.Ready)
	if a.addrs, err = exchange.ReadAddrs(a.tcp, int(a.theirs.Addrs)); err != nil {
		return err
	}
	if a.peer, err = exchange.ReadText(a.tcp, a.theirs.Text); err != nil {
		return err
	}
	a.attr.GID.Peer = rc.AddrOf(a.theirs.Queues[rc.WriteQueue])
	a.c, err = a.caller.conn(ctx, a)
	return err
}

// maxInline is the largest size of inline data that a device is asked for.
const maxInline = 256

// open makes the queue pairs.
func (a *attempt) open() error {
	a.opt, a.again = a.c.opt, a.c.Works.Begun() // a caller may make another link through another listener
	a.attr.End = a.e.nic.End
	o := a.opt
	a.attr.SendDepth, a.attr.RecvDepth, a.attr.SGE, a.attr.Inline = o.SendDepth, o.RecvDepth, o.MaxSGE, min(o.InjectSize, maxInline)
	q, err := a.e.Queues().Reserve(o.room())
	if err != nil {
		return err
	}
	a.attr.Queue, a.attr.Broke = q.CQ(), a.c.Works.Link.Watch()
	l, err := a.e.nic.Device().Link(a.attr)
	if err != nil {
		q.Release(o.room())
		return err
	}
	a.queue, a.pairs = q, l
	return nil
}

// greet exchanges the hellos, connects the queue pairs, and starts the operations.
func (a *attempt) greet(ctx context.Context) error {
	a.describe()
	if a.caller == nil {
		if err := a.callerHello(); err != nil {
			return err
		}
	}
	if err := a.agree(); err != nil {
		return err
	}
	a.path = pathOver(a.e.nic.Name(), a.pairs, a.theirs.Queues)
	if err := a.pairs.Connect(a.theirs.Queues, a.theirs.ReadsIn); err != nil {
		return fmt.Errorf("%w; over %v", err, a.path)
	}
	if err := a.attach(); err != nil {
		return err
	}
	if a.caller != nil {
		if err := exchange.WriteHello(a.tcp, &a.ours, a.opt.Rails.Addrs, a.opt.Hello); err != nil {
			return err
		}
		if _, err := exchange.ReadMessage(a.tcp, exchange.MsgReady); err != nil {
			return err
		}
		return a.caller.welcome(a)
	}
	if a.again {
		if err := a.c.Works.Link.Probe(ctx); err != nil {
			return fmt.Errorf("%w; over %v", err, a.path)
		}
	}
	if err := exchange.WriteMessage(a.tcp, exchange.MsgReady, nil); err != nil {
		return err
	}
	if _, err := exchange.ReadMessage(a.tcp, exchange.MsgReady); err != nil {
		return err
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	return a.link.start(a.c.peer, true)
}

// describe makes this side's hello.
func (a *attempt) describe() {
	c, attr := a.c, a.pairs.Attr()
	a.ours = exchange.Hello{
		Conn: c.token, Endpoint: a.e.token, Queues: a.pairs.Local(), ReadsIn: attr.ReadsIn, ReadsOut: attr.ReadsOut,
		Mail: a.opt.mail(), Text: len(a.opt.Hello),
	}
	session, next := c.links.name()
	a.ours.Rails = uint8(a.opt.Rails.NICs)
	if a.ours.Group, a.ours.Rail = a.opt.Rails.Group, uint8(a.opt.Rails.Rail); a.caller != nil {
		a.ours.Group, a.ours.Rail = a.theirs.Group, a.theirs.Rail
	}
	switch {
	case a.again:
		received, untaken := c.Works.Link.Received()
		a.ours.Session, a.ours.Link, a.ours.Received, a.ours.Untaken = session, next, received, uint16(untaken)
	case !a.opt.Outlive:
	case a.caller == nil:
		a.ours.Session = memory.NewID()
	case a.theirs.Session != 0:
		a.ours.Session = a.theirs.Session
		c.links.outlive(a.theirs.Session)
	}
	if a.ours.Session == 0 {
		a.ours.Rails = 0
	}
	if a.caller != nil && !a.again && a.ours.Rail == 0 && a.ours.Rails > 0 && a.theirs.Rails > 0 {
		a.ours.Addrs = uint8(len(a.opt.Rails.Addrs))
	}
}

// callerHello sends the hello of the side that has called, and reads the listener's.
func (a *attempt) callerHello() (err error) {
	if err := exchange.WriteHello(a.tcp, &a.ours, nil, a.opt.Hello); err != nil {
		// A listener that has closed the stream may have sent its reason before.
		if why := exchange.ReadHello(a.tcp, &a.theirs); why != nil && !errors.Is(why, io.EOF) {
			err = exchange.NotTrusted(why)
		}
		return err
	}
	if err := exchange.ReadHello(a.tcp, &a.theirs); err != nil {
		err = exchange.NotTrusted(err)
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: the peer has hung up and gave no reason, as one does that speaks version 2", err)
		}
		if errors.Is(err, ErrRejected) && !exchange.WithoutReason(err) { // the peer has sent its reason
			return err
		}
		// The peer may have no GID that reaches this one, and it does not report that.
		o := pathOver(a.e.nic.Name(), a.pairs, a.theirs.Queues)
		return fmt.Errorf("%w; this side offered %s%s", err, o.from(), o.because())
	}
	if a.addrs, err = exchange.ReadAddrs(a.tcp, int(a.theirs.Addrs)); err != nil {
		return err
	}
	if a.peer, err = exchange.ReadText(a.tcp, a.theirs.Text); err != nil {
		return err
	}
	switch {
	case a.theirs.Rail != a.ours.Rail || a.theirs.Group != a.ours.Group:
		return errOther
	case a.again && (a.theirs.Session != a.ours.Session || a.theirs.Link == 0 || !sameCertificate(a.c.Peer().TLS, a.peer.TLS)):
		return errOther
	case !a.again && a.ours.Session != 0 && a.theirs.Session == a.ours.Session:
		a.c.links.outlive(a.ours.Session)
	}
	return nil
}

// agree takes what the peer's hello says of messages.
func (a *attempt) agree() error {
	if a.again {
		return a.c.Works.Link.Reconcile(a.theirs.Received, int(a.theirs.Untaken))
	}
	ours, theirs := a.ours.Mail, a.theirs.Mail
	if (ours.Depth == 0) != (theirs.Depth == 0) {
		const text = "one side receives messages by itself, and the other does not"
		return exchange.NewRejection(text, fmt.Errorf("%w: %s", ErrRejected, text))
	}
	if ours.Depth == 0 {
		return nil
	}
	size := func(m exchange.Mail) mailbox.Size { return mailbox.Size{Depth: int(m.Depth), Length: int(m.Size)} }
	switch {
	case a.opt.Rails.Messages != nil:
		a.messages = a.opt.Rails.Messages
	case a.messages == nil && a.ours.Rails > 0 && a.theirs.Rails > 0:
		a.messages = mailbox.NewShared()
	}
	return a.c.Works.OpenMailbox(size(ours), size(theirs), a.messages)
}

// attach gives the link to the connection.
func (a *attempt) attach() error {
	c, number := a.c, uint32(0)
	if a.again { // one side may have had a link that the other side has not started
		number = max(a.ours.Link, a.theirs.Link)
	}
	l := newLink(c, number, a.tcp, a.path)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links.last = l
	if c.info.Addr == nil {
		c.info, c.peerNICs, c.peerAddrs, c.messages = a.peer, int(a.theirs.Rails), a.addrs, a.messages
		c.rail, c.group = int(a.theirs.Rail), cmp.Or(a.theirs.Group, a.theirs.Session)
	}
	if err := c.Works.Link.Adopt(a.pairs, a.queue, [2]uint64{a.theirs.Conn, a.theirs.Endpoint}, a.path); err != nil {
		return err
	}
	a.link = l
	return nil
}
