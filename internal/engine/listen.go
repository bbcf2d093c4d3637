// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net"
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/errs"
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

// closed reports whether Close was called. The caller holds the endpoint's mutex.
func (l *Listener) closed() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
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
			return nil, &failure.Error{Op: "accept", Detail: "no caller has connected", Err: errs.Ended(ctx)}
		case <-done:
			return nil, errs.Closed("listener")
		case <-e.life.Done():
			return nil, e.isClosed()
		}
	}
}
