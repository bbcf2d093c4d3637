// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/handshake"
	"github.com/gpurdma/gpurdma/internal/operation"
)

// calling is a caller of a listener.
type calling struct {
	*handshake.Caller
	l *Listener
}

// acceptCaller connects a caller. The caller becomes a peer when it is connected: a caller that has
// only sent its hello takes no place in the table. OnReject receives the error.
func (l *Listener) acceptCaller(ctx context.Context, caller *handshake.Caller) error {
	a := &attempt{e: l.e, raw: caller.Conn, opt: l.opt, caller: &calling{caller, l}}
	err := a.run(ctx)
	switch c := a.c; {
	case c != nil && a.theirs.Link > 0:
		return c.links.answered(err)
	case c != nil && err != nil:
		c.Works.Abort(err)
		<-c.ended
		if c.peer != 0 { // readExchange calls OnReject
			return nil
		}
	}
	return err
}

// conn returns the connection that a caller's hello names, or a new one.
func (k *calling) conn(ctx context.Context, a *attempt) (*Conn, error) {
	if err := k.findRail(a); err != nil {
		return nil, err
	}
	e, session := a.e, a.theirs.Session
	if a.theirs.Link > 0 {
		return e.called(ctx, k.Conn, &a.theirs, a.peer)
	}
	if admit := k.l.opt.Admit; admit != nil && a.theirs.Rail == 0 {
		if err := admit(ctx, a.peer); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.table.hasPlace(); err != nil {
		return nil, err
	}
	if session != 0 && e.sessions[session] != nil {
		return nil, fmt.Errorf("%w: the name of the connection is taken", ErrRejected)
	}
	return e.newConn(new(peer), k.l.opt), nil
}

// findRail finds the endpoint of the NIC that a caller's rail is for.
func (k *calling) findRail(a *attempt) error {
	if a.theirs.Rail == 0 {
		return nil
	}
	find := k.l.opt.Rails.Find
	if find == nil {
		return unknown("that has one rail only")
	}
	e, messages, err := find(a.theirs.Group, int(a.theirs.Rail), a.peer)
	switch {
	case err != nil:
	case e == nil:
		err = unknown("whose first rail is not known")
	case a.attr.Path != nil:
		err = &failure.Error{Op: "connect a rail", Detail: "over rdma_cm", Remedy: "use host:port: a stream of rdma_cm is bound to one NIC", Err: unix.EOPNOTSUPP}
	default:
		a.e, a.messages = e, messages
	}
	return err
}

// welcome sends a caller a ready, and starts the operations. At the first link the caller becomes
// a peer, which Accept returns.
func (k *calling) welcome(a *attempt) error {
	if a.again {
		if err := k.Connected(); err != nil {
			return err
		}
		return k.join(a, a.c.peer)
	}
	p, err := k.enlist(a)
	if err != nil {
		return err
	}
	if err = k.Connected(); err == nil {
		err = k.admit(a, p)
	}
	if err != nil {
		a.e.unlist(p)
	}
	return err
}

// admit gives a caller that is a peer to the program.
func (k *calling) admit(a *attempt, p *peer) error {
	joined := func() error {
		if k.l.opt.Rails.Joined == nil || a.theirs.Rails == 0 {
			return nil
		}
		return k.l.opt.Rails.Joined(a.theirs.Group, int(a.theirs.Rail), a.c)
	}
	if a.theirs.Rail > 0 {
		if err := k.join(a, p.id); err != nil {
			return err
		}
		return joined()
	}
	if err := k.l.reserve(); err != nil {
		return err
	}
	err := joined() // before the ready, after which the caller adds rails
	if err == nil {
		err = k.join(a, p.id)
	}
	if err != nil {
		k.l.release()
		return err
	}
	return k.announce(p)
}

// enlist makes a caller a peer.
func (k *calling) enlist(a *attempt) (*peer, error) {
	e, c := a.e, a.c
	session, _ := c.links.name()
	e.mu.Lock()
	defer e.mu.Unlock()
	p, err := e.table.insert("")
	if errors.Is(err, failure.ErrLimit) {
		err = exchange.NewRejection(exchange.TextFull, err)
	}
	if err != nil {
		return nil, err
	}
	p.conn = c
	if session != 0 && e.sessions[session] == nil { // teardown removes it
		e.sessions[session] = c
	}
	return p, nil
}

// unlist removes a peer that is not connected after all.
func (e *Endpoint) unlist(p *peer) {
	session, _ := p.conn.links.name()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table.forget(p.id)
	if e.sessions[session] == p.conn { // its teardown may have been before enlist
		delete(e.sessions, session)
	}
}

// join sends a caller a ready, and starts the operations, unless the connection has ended
// meanwhile. The caller's handshake cannot be ended any more in favour of another caller's.
func (k *calling) join(a *attempt, id operation.Peer) error {
	if err := exchange.WriteMessage(a.tcp, exchange.MsgReady, nil); err != nil {
		return err
	}
	c, l := a.c, a.link
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.tcp == net.Conn(k.Caller) {
		l.tcp = k.Conn
	}
	known := a.again || a.theirs.Rail > 0 // the program knows the connection
	if err := l.start(id, known); err != nil {
		return err
	}
	if !a.again {
		c.peer = id
	}
	if !known {
		c.uninvited, c.listener = true, k.l
	}
	return nil
}

// announce queues a peer for Accept.
func (k *calling) announce(p *peer) error {
	l := k.l
	l.e.mu.Lock() // one goroutine at a time adds a peer
	defer l.e.mu.Unlock()
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
		return exchange.NewRejection(exchange.TextFull, fmt.Errorf("%w: the listener has %d connections", failure.ErrLimit, l.conns))
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

// rejectWait bounds how long sending a reject may take.
const rejectWait = time.Second

// reject sends the reason to a caller that is not connected.
func (l *Listener) reject(tcp net.Conn, greeted bool, why error) {
	kind, body, ok := exchange.Reason(why, greeted, l.e.life.Err() != nil)
	if !ok {
		return
	}
	_ = tcp.SetDeadline(time.Now().Add(rejectWait))
	_ = exchange.WriteMessage(tcp, kind, body)
}
