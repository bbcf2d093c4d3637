// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/handshake"
	"github.com/gpurdma/gpurdma/internal/operation"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Listener accepts connections at an address, with options of its own.
type Listener struct {
	e        *Endpoint
	opt      *EndpointOptions
	net      net.Listener
	accepted chan *peer
	done     chan struct{} // closed by Close
	once     sync.Once
	closeNet func() error // closes net; later calls do nothing

	// The endpoint's mutex guards these.
	coming int // callers that have a place in accepted, and are not in it yet
	conns  int // connections that have not ended, those coming included
}

// Listen accepts connections on a TCP address ("host:port"; port 0 chooses one), or on an rdma_cm
// address ("rdma_cm://host:port"), and returns the address. Accept returns the peers that have
// connected. A peer that disconnects before it was accepted is removed, and OnReject is called;
// an accepted peer stays in the table, as operation.Peer describes, and [Endpoint.Lost] reports
// its end.
func (e *Endpoint) Listen(addr string) (net.Addr, error) {
	l, err := e.listen(addr, &e.opt, e.accepted)
	if err != nil {
		return nil, err
	}
	return l.Addr(), nil
}

// ListenWith is Listen with options of the listener's own, and with an Accept of its own.
// backlog is the number of peers that may wait for Accept.
func (e *Endpoint) ListenWith(addr string, opt EndpointOptions, backlog int) (*Listener, error) {
	if err := e.connOptions(&opt); err != nil {
		return nil, err
	}
	return e.listen(addr, &opt, make(chan *peer, backlog))
}

func (e *Endpoint) listen(addr string, opt *EndpointOptions, accepted chan *peer) (*Listener, error) {
	if opt.TLS != nil {
		if _, err := opt.protection().Mutual("", false); err != nil {
			return nil, err
		}
	}
	nl, err := e.listener(addr, opt)
	if err != nil {
		return nil, err
	}
	if opt.TLS == nil {
		if err := opt.protection().MayBePlain(nl.Addr()); err != nil {
			return nil, errs.Close(err, nl)
		}
	}
	l := &Listener{e: e, opt: opt, net: nl, accepted: accepted, done: make(chan struct{}), closeNet: sync.OnceValue(nl.Close)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed != nil {
		return nil, errs.Close(e.isClosed(), nl)
	}
	e.listeners = append(e.listeners, l)
	e.tasks.Go(l.serve)
	return l, nil
}

func (e *Endpoint) listener(addr string, opt *EndpointOptions) (net.Listener, error) {
	if addr, ok := cmstream.Cut(addr); ok {
		cfg, err := streamConfig(e.nic, opt)
		if err != nil {
			return nil, err
		}
		return cmstream.Listen(e.life, cfg, addr)
	}
	if own := network(e.nic); own != nil {
		return own.Listen(addr)
	}
	return net.Listen("tcp", addr)
}

// Addr returns the address.
func (l *Listener) Addr() net.Addr { return l.net.Addr() }

// Close stops listening, and ends the connections that Accept has not returned.
func (l *Listener) Close() error {
	var err error
	l.once.Do(func() {
		l.e.mu.Lock()
		l.e.listeners = slices.DeleteFunc(slices.Clone(l.e.listeners), func(x *Listener) bool { return x == l })
		close(l.done) // announce adds no more peers
		l.e.mu.Unlock()
		err = l.closeNet()
		for more := true; more; {
			select {
			case p := <-l.accepted:
				p.conn.Works.Abort(workqueue.ErrRemoved)
				<-p.conn.ended
			default: // Accept may have taken the last one
				more = false
			}
		}
	})
	return err
}

// Accept waits for a peer that connects, and returns its connection.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	p, err := l.e.accept(ctx, l.accepted, l.done)
	if err != nil {
		return nil, err
	}
	return p.conn, nil
}

// pendingHandshakes is the number of callers of an endpoint that may be in a handshake at once,
// at all of its listeners together. Each has a descriptor and two goroutines, and a third one
// while it is ended. A caller over rdma_cm also has pinned memory and a queue pair; after its
// hello it has the queue pairs of its connection, too. Besides them at most handshake.Ending
// callers are ending, whose places other callers have taken.
const pendingHandshakes = 256

func (l *Listener) serve() {
	s := handshake.Server{Pending: l.e.pending, Timeout: l.opt.ConnectTimeout, Handshake: l.acceptCaller}
	if l.opt.OnReject != nil {
		s.OnReject = l.rejected
	}
	s.Serve(l.e.life, l.net)
}

// rejected reports a caller that is not connected.
func (l *Listener) rejected(from net.Addr, why error) {
	caller := PeerInfo{Addr: from}
	if k := (*knownCaller)(nil); errors.As(why, &k) {
		caller, why = k.info, k.error
	}
	l.opt.OnReject(caller, why)
}

// knownCaller is the error of a caller that has sent its hello.
type knownCaller struct {
	info PeerInfo
	error
}

func (k *knownCaller) Unwrap() error { return k.error }

// acceptCaller connects a caller. The caller becomes a peer when it is connected: a caller that
// has only sent its hello takes no place in the table. OnReject receives the error.
func (l *Listener) acceptCaller(ctx context.Context, caller *handshake.Caller) error {
	e := l.e
	var c, again *Conn
	err := e.exchange(ctx, l.opt, caller.Conn, "", &calling{caller, l}, func(theirs *exchange.Hello, from PeerInfo) (*Conn, error) {
		if theirs.Link > 0 {
			var err error
			again, err = e.calledAgain(ctx, caller.Conn, theirs, from)
			return again, err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if err := e.table.hasPlace(); err != nil {
			return nil, err
		}
		if theirs.Session != 0 && e.sessions[theirs.Session] != nil {
			return nil, fmt.Errorf("%w: the name of the connection is taken", ErrRejected)
		}
		c = e.newConn(new(peer), l.opt)
		return c, nil
	})
	if again != nil {
		return again.attempted(err)
	}
	if err == nil || c == nil {
		return err
	}
	c.Works.Abort(err)
	<-c.ended
	if c.peer != 0 { // readExchange calls OnReject
		return nil
	}
	return err
}

// calling is a caller of a listener.
type calling struct {
	*handshake.Caller
	l *Listener
}

// reserve gives a caller a place among the connections that wait for Accept, until announce or
// release.
func (l *Listener) reserve() error {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if l.closed() { // Close takes the connections in accepted
		return exchange.NewRejection(exchange.TextClosing, fmt.Errorf("%w: the listener is closed", ErrNotConnected))
	}
	for range len(l.accepted) { // peers that have ended take no place
		select {
		case q := <-l.accepted:
			if !q.conn.Works.Over() {
				l.accepted <- q
			}
		default: // Accept has taken it meanwhile
		}
	}
	switch {
	case len(l.accepted)+l.coming >= cap(l.accepted):
		return exchange.NewRejection(exchange.TextBacklog, fmt.Errorf("%w: %d connections wait for Accept", ErrNotConnected, len(l.accepted)+l.coming))
	case l.opt.MaxConns > 0 && l.conns >= l.opt.MaxConns:
		return exchange.NewRejection(exchange.TextFull, fmt.Errorf("%w: the listener has %d connections", dmabuf.ErrLimit, l.conns))
	}
	l.coming++
	l.conns++
	return nil
}

// release gives back the place of a caller that was not connected.
func (l *Listener) release() {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	l.coming--
	l.conns--
}

// closed reports whether Close was called. The caller holds the endpoint's mutex.
func (l *Listener) closed() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// enlist makes a connected caller a peer, which Accept returns. From here on its handshake
// cannot be ended in favour of another caller's.
func (e *Endpoint) enlist(c *Conn, caller *calling) error {
	e.mu.Lock()
	p, err := e.table.insert("")
	if err == nil {
		p.conn = c
		if c.session != 0 && e.sessions[c.session] == nil { // teardown removes it
			e.sessions[c.session] = c
		}
	}
	e.mu.Unlock()
	if errors.Is(err, dmabuf.ErrLimit) {
		err = exchange.NewRejection(exchange.TextFull, err)
	}
	if err != nil {
		return err
	}
	if err := e.welcome(c, p, caller); err != nil {
		e.unlist(p.id)
		return err
	}
	return e.announce(p, caller.l)
}

// welcomeAgain sends a caller that makes another link a ready, and starts the operations.
func (c *Conn) welcomeAgain(caller *calling) error {
	if err := caller.Connected(); err != nil {
		return err
	}
	if err := exchange.WriteMessage(c.tcp, exchange.MsgReady, nil); err != nil {
		return err
	}
	c.mu.Lock()
	if c.tcp == net.Conn(caller.Caller) {
		c.tcp = caller.Conn
	}
	c.mu.Unlock()
	return c.relink()
}

// welcome gives a caller a place among those that wait for Accept, sends it a ready, and starts
// the connection.
func (e *Endpoint) welcome(c *Conn, p *peer, caller *calling) error {
	if err := caller.Connected(); err != nil {
		return err
	}
	if err := caller.l.reserve(); err != nil {
		return err
	}
	err := exchange.WriteMessage(c.tcp, exchange.MsgReady, nil)
	if err == nil {
		err = c.join(p.id, caller)
	}
	if err != nil {
		caller.l.release()
	}
	return err
}

// join gives a caller's connection its number in the table, and starts it, unless it has ended
// meanwhile.
func (c *Conn) join(id operation.Peer, caller *calling) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tcp == net.Conn(caller.Caller) {
		c.tcp = caller.Conn
	}
	if err := c.start(id, false); err != nil {
		return err
	}
	c.peer, c.uninvited, c.listener = id, true, caller.l
	return nil
}

// unlist removes a peer from the table.
func (e *Endpoint) unlist(id operation.Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table.forget(id)
}

// announce queues a peer for Accept.
func (e *Endpoint) announce(p *peer, l *Listener) error {
	e.mu.Lock() // one goroutine at a time adds a peer
	defer e.mu.Unlock()
	l.coming--
	if l.closed() {
		return fmt.Errorf("%w: the listener is closed", ErrNotConnected)
	}
	select {
	case l.accepted <- p:
		return nil
	default: // another listener of the endpoint has taken the last place
		return fmt.Errorf("%w: too many peers wait for Accept", ErrNotConnected)
	}
}

// Accept waits for a peer that connects, and returns it.
func (e *Endpoint) Accept(ctx context.Context) (operation.Peer, error) {
	p, err := e.accept(ctx, e.accepted, nil)
	if err != nil {
		return 0, err
	}
	return p.id, nil
}

func (e *Endpoint) accept(ctx context.Context, accepted chan *peer, done chan struct{}) (*peer, error) {
	for {
		select {
		case p := <-accepted:
			c := p.conn // it does not change: the peer has connected
			c.mu.Lock()
			there := c.Works.Accepted() // and Remove was not called
			if there {
				c.uninvited = false
			}
			c.mu.Unlock()
			if there {
				return p, nil
			}
		case <-ctx.Done():
			return nil, &dmabuf.Error{Op: "accept", Detail: "no caller has connected", Err: errs.Ended(ctx)}
		case <-done:
			return nil, errs.Closed("listener")
		case <-e.life.Done():
			return nil, e.isClosed()
		}
	}
}

// rejectWait bounds how long sending a reject may take.
const rejectWait = time.Second

// reject sends the reason to a caller that is not connected.
func (e *Endpoint) reject(tcp net.Conn, greeted bool, why error) {
	kind, body, ok := exchange.Reason(why, greeted, e.life.Err() != nil)
	if !ok {
		return
	}
	_ = tcp.SetDeadline(time.Now().Add(rejectWait))
	_ = exchange.WriteMessage(tcp, kind, body)
}
