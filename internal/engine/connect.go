// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/cqueue"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/handshake"
	"github.com/gpurdma/gpurdma/internal/mailbox"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/rc"
	"golang.org/x/sys/unix"
)

// Connect connects to the endpoint that listens on an address: "host:port" is an address of TCP,
// or of the device's own network if it has one; "rdma_cm://host:port" is an rdma_cm address. An
// InfiniBand peer behind a router is reached over rdma_cm only: over TCP it sends a LID that is
// not valid in the local subnet. Once the connection is lost the Peer cannot be used any more.
func (e *Endpoint) Connect(ctx context.Context, addr string) (operation.Peer, error) {
	c, err := e.connect(ctx, addr, &e.opt)
	if err != nil {
		return 0, err
	}
	return c.peer, nil
}

// ConnectWith is Connect with options of the connection's own.
func (e *Endpoint) ConnectWith(ctx context.Context, addr string, opt EndpointOptions) (*Conn, error) {
	if err := e.connOptions(&opt); err != nil {
		return nil, err
	}
	return e.connect(ctx, addr, &opt)
}

func (e *Endpoint) connect(ctx context.Context, addr string, opt *EndpointOptions) (*Conn, error) {
	e.mu.Lock()
	p, err := e.table.insert("")
	if err != nil {
		e.mu.Unlock()
		return nil, err
	}
	c := e.newConn(p, opt)
	e.tasks.Add(1) // Close waits: the NIC must outlive the exchange
	defer e.tasks.Done()
	e.mu.Unlock()
	if err := e.dial(ctx, c, addr); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.table.forget(p.id)
		return nil, err
	}
	return c, nil
}

// connFor returns the connection to a peer. If there is none, and the table has an address, it
// starts one.
func (e *Endpoint) connFor(id operation.Peer) (*Conn, error) {
	c, p, err := e.connOf(id)
	if p != nil {
		e.dialLater(c, p.addr)
	}
	return c, err
}

// dialLater dials for a connection that connOf has made, in a goroutine.
func (e *Endpoint) dialLater(c *Conn, addr string) {
	go func() {
		defer e.tasks.Done()
		_ = e.dial(e.life, c, addr) // the connection's end notifies the goroutines that wait
	}()
}

// connOf returns the connection to a peer. If it has made a new one, it also returns the peer,
// to whose address the caller must call dialLater.
func (e *Endpoint) connOf(id operation.Peer) (*Conn, *peer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := e.table.lookup(id)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case p.conn != nil && (!p.conn.Works.Over() || p.addr == ""):
		return p.conn, nil, nil
	case p.addr == "":
		return nil, nil, fmt.Errorf("peer %d: %w", id, ErrNotConnected)
	}
	c := e.newConn(p, &e.opt)
	e.tasks.Add(1) // the exchange: Close waits for its end
	return c, p, nil
}

// dial makes a connection, or aborts it.
func (e *Endpoint) dial(ctx context.Context, c *Conn, addr string) error {
	limit := fmt.Errorf("no connection within %v (ConnectTimeout): %w", c.opt.ConnectTimeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, c.opt.ConnectTimeout, limit)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	err := e.dialed(ctx, c, addr)
	if err != nil {
		if d, ok := ctx.Deadline(); ok && errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(d) {
			<-ctx.Done() // its timer is late
		}
		over := errs.Ended(ctx)
		if e.life.Err() != nil {
			over = e.isClosed()
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && over != nil && !errors.Is(over, context.DeadlineExceeded):
			err = over // the deadline was only the means to end the exchange
		case e.life.Err() == nil && ctx.Err() != nil && errors.Is(err, ctx.Err()): // the dialer returns ctx's error without its cause
			if cause := context.Cause(ctx); !errors.Is(err, cause) {
				err = errs.Join(err, cause)
			}
		case over != nil && !errors.Is(err, over):
			err = errs.Join(err, over)
		}
		err = &dmabuf.Error{Op: "connect", Device: addr, Err: err}
		c.Works.Abort(err)
	}
	return err
}

func (e *Endpoint) dialed(ctx context.Context, c *Conn, addr string) error {
	c.addr = addr
	addr, rdma := cmstream.Cut(addr)
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if c.opt.TLS != nil {
		if _, err := c.opt.protection().Mutual(host, true); err != nil {
			return err
		}
	}
	var raw net.Conn
	if rdma {
		raw, err = dialStream(ctx, e.nic, c.opt, addr)
	} else if own := network(e.nic); own != nil {
		raw, err = own.Dial(ctx, addr)
	} else {
		raw, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return err
	}
	return e.exchange(ctx, c.opt, raw, host, nil, func(*exchange.Hello, PeerInfo) (*Conn, error) { return c, nil })
}

// exchange connects two endpoints over a TCP or rdma_cm connection, which it takes over. It calls
// whose to get the Conn; a listener's side does so after the caller's hello. caller is nil on the
// side that has called.
func (e *Endpoint) exchange(ctx context.Context, opt *EndpointOptions, raw net.Conn, host string, caller *calling, whose func(*exchange.Hello, PeerInfo) (*Conn, error)) (err error) {
	client, through := caller == nil, raw
	if !client {
		through = caller.Caller
	}
	opt.keep.Apply(raw)
	late := make(chan struct{})
	inTime := context.AfterFunc(ctx, func() {
		_ = raw.SetDeadline(time.Unix(1, 0))
		close(late)
	})
	var tcp net.Conn // raw, once it is protected
	var theirs exchange.Hello
	var peer PeerInfo
	defer func() {
		// The function above may be setting the deadline right now.
		if !inTime() {
			<-late
			if err == nil {
				err = errs.Ended(ctx)
			}
		}
		if err == nil {
			return
		}
		if !client && tcp != nil {
			e.reject(tcp, theirs != exchange.Hello{}, err)
		}
		if !client && (errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)) {
			err = fmt.Errorf("the caller has hung up: %w", err)
		}
		if peer.Addr != nil {
			err = &knownCaller{peer, err}
		}
		_ = raw.Close()
	}()
	attr := rc.Attr{Connect: opt.Connect, End: e.nic.End}
	if s, ok := raw.(*cmstream.Stream); ok {
		if err := s.Establish(ctx); err != nil {
			return err
		}
		path, err := s.Path()
		if err != nil {
			return err
		}
		attr.Path = &path
	}
	attr.PKey = opt.PKey
	attr.GID = rc.GIDSelector{Wish: opt.GID, Port: opt.Port}
	attr.GID.Ends(raw)
	if tcp, err = opt.protection().Protect(ctx, through, host, client); err != nil {
		tcp = nil
		if !client && errors.As(err, new(tls.RecordHeaderError)) { // the caller does not speak TLS: it can read a plaintext reason
			e.reject(raw, false, err)
		}
		return err
	}
	if !client {
		caller.Advance(handshake.Hello)
		if err := exchange.ReadHello(tcp, &theirs); err != nil {
			return err
		}
		caller.Advance(handshake.Ready)
		if peer, err = exchange.ReadText(tcp, theirs.Text); err != nil {
			return err
		}
		if opt.Admit != nil && theirs.Link == 0 {
			if err := opt.Admit(ctx, peer); err != nil {
				return err
			}
		}
		attr.GID.Peer = rc.AddrOf(theirs.Queues[rc.WriteQueue])
	}
	c, err := whose(&theirs, peer)
	if err != nil {
		return err
	}
	opt = c.opt // a caller may make another link through another listener
	attr.SendDepth, attr.RecvDepth, attr.SGE, attr.Inline = opt.SendDepth, opt.RecvDepth, opt.MaxSGE, min(opt.InjectSize, maxInline)
	q, err := e.Queues().Reserve(opt.room())
	if err != nil {
		return err
	}
	attr.Queue, attr.Broke = q.CQ(), c.Works.Broke
	l, err := e.nic.Device().Link(attr)
	if err != nil {
		q.Release(opt.room())
		return err
	}
	if err := e.exchangeHello(ctx, c, l, q, tcp, theirs, peer, caller); err != nil {
		if c.Works.State().Link == nil { // otherwise the connection's end closes it
			_ = e.nic.End(l.Close)
			q.Release(opt.room())
		}
		return err
	}
	return nil
}

// maxInline is the largest size of inline data that a device is asked for.
const maxInline = 256

// exchangeHello exchanges the hellos, and connects the link.
func (e *Endpoint) exchangeHello(ctx context.Context, c *Conn, l rc.Link, q *cqueue.Queue, tcp net.Conn, theirs exchange.Hello, peer PeerInfo, caller *calling) error {
	a, client := l.Attr(), caller == nil
	ours := exchange.Hello{
		Conn: c.token, Endpoint: e.token, Queues: l.Local(), ReadsIn: a.ReadsIn, ReadsOut: a.ReadsOut,
		Mail: c.opt.mail(), Text: len(c.opt.Hello),
	}
	again := c.Works.Begun()
	c.mu.Lock()
	ours.Session = c.session
	if again {
		ours.Link = c.links + 1
	}
	c.mu.Unlock()
	switch {
	case again:
		received, untaken := c.Works.Received()
		ours.Received, ours.Untaken = received, uint16(untaken)
	case client && c.opt.Outlive:
		ours.Session = memory.NewID()
	case !client && c.opt.Outlive && theirs.Session != 0:
		ours.Session = theirs.Session
		c.outlives(theirs.Session)
	}
	if client {
		if err := exchange.WriteHello(tcp, &ours, c.opt.Hello); err != nil {
			// A listener that has closed the stream may have sent its reason before.
			if why := exchange.ReadHello(tcp, &theirs); why != nil && !errors.Is(why, io.EOF) {
				err = exchange.NotTrusted(why)
			}
			return err
		}
		if err := exchange.ReadHello(tcp, &theirs); err != nil {
			err = exchange.NotTrusted(err)
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: the peer has hung up and gave no reason, as one does that speaks version 2", err)
			}
			if errors.Is(err, ErrRejected) && !exchange.WithoutReason(err) { // the peer has sent its reason
				return err
			}
			// The peer may have no GID that reaches this one, and it does not report that.
			o := pathOver(e.nic.Name(), l, theirs.Queues)
			return fmt.Errorf("%w; this side offered %s%s", err, o.from(), o.because())
		}
		var err error
		if peer, err = exchange.ReadText(tcp, theirs.Text); err != nil {
			return err
		}
		switch {
		case again && (theirs.Session != ours.Session || theirs.Link == 0 || !sameCertificate(c.Peer().TLS, peer.TLS)):
			return errOther
		case !again && ours.Session != 0 && theirs.Session == ours.Session:
			c.outlives(ours.Session)
		}
	}
	var err error
	if again {
		err = c.Works.Reconcile(theirs.Received, int(theirs.Untaken))
	} else {
		err = c.openMailbox(ours.Mail, theirs.Mail)
	}
	if err != nil {
		return err
	}
	path := pathOver(e.nic.Name(), l, theirs.Queues)
	if err := l.Connect(theirs.Queues, theirs.ReadsIn); err != nil {
		return fmt.Errorf("%w; over %v", err, path)
	}
	if err := e.attachLink(c, l, q, tcp, theirs, peer, path); err != nil {
		return err
	}
	if client {
		if again {
			if err := c.Works.Probe(ctx); err != nil {
				return fmt.Errorf("%w; over %v", err, path)
			}
		}
		if err := exchange.WriteMessage(tcp, exchange.MsgReady, nil); err != nil {
			return err
		}
		if _, err := exchange.ReadMessage(tcp, exchange.MsgReady); err != nil {
			return err
		}
	} else {
		if err := exchange.WriteHello(tcp, &ours, c.opt.Hello); err != nil {
			return err
		}
		if _, err := exchange.ReadMessage(tcp, exchange.MsgReady); err != nil {
			return err
		}
	}
	switch {
	case again && !client:
		return c.welcomeAgain(caller)
	case again:
		return c.relink()
	case !client:
		return e.enlist(c, caller)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start(c.peer, true)
}

// openMailbox makes the connection receive messages by itself, if both sides do.
func (c *Conn) openMailbox(ours, theirs exchange.Mail) error {
	if (ours.Depth == 0) != (theirs.Depth == 0) {
		const text = "one side receives messages by itself, and the other does not"
		return exchange.NewRejection(text, fmt.Errorf("%w: %s", ErrRejected, text))
	}
	if ours.Depth == 0 {
		return nil
	}
	size := func(m exchange.Mail) mailbox.Size { return mailbox.Size{Depth: int(m.Depth), Length: int(m.Size)} }
	return c.Works.OpenMailbox(size(ours), size(theirs))
}

// start starts the operations, and the goroutine that reads the peer's messages, unless the
// connection has begun to end. accepted reports whether the program knows the peer. The caller
// holds the mutex.
func (c *Conn) start(peer operation.Peer, accepted bool) error {
	if err := c.Works.Up(peer, accepted); err != nil {
		return err
	}
	tcp := c.tcp
	_ = tcp.SetDeadline(time.Time{})
	c.reading = true
	c.e.tasks.Go(func() { c.readExchange(tcp) })
	return nil
}

// attachLink gives the link to the connection.
func (e *Endpoint) attachLink(c *Conn, l rc.Link, q *cqueue.Queue, tcp net.Conn, theirs exchange.Hello, peer PeerInfo, path *ConnPath) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tcp, c.path = tcp, path
	if c.info.Addr == nil {
		c.info = peer
	}
	return c.Works.Adopt(l, q, [2]uint64{theirs.Conn, theirs.Endpoint}, path)
}
