// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/errs"
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
		err = &failure.Error{Op: "connect", Device: addr, Err: err}
		c.Works.Abort(err)
	}
	return err
}

func (e *Endpoint) dialed(ctx context.Context, c *Conn, addr string) error {
	c.links.addr = addr
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
		way := Way{}
		if c.opt.Rails.Way != nil {
			way = c.opt.Rails.Way()
		}
		if way.To.IsValid() {
			addr = way.To.String()
		}
		raw, err = way.dialer().DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return err
	}
	return (&attempt{e: e, raw: raw, opt: c.opt, host: host, c: c}).run(ctx)
}

// streamConfig returns what streams over rdma_cm need of a NIC. Only a device of this
// machine has rdma_cm.
func streamConfig(nic *memory.NIC, opt *EndpointOptions) (*cmstream.Config, error) {
	d, ok := nic.Device().(*rc.Verbs)
	if !ok {
		return nil, &failure.Error{
			Op: "use rdma_cm", Device: nic.Name(), Detail: "the device is not one of this machine",
			Remedy: "use host:port", Err: unix.EOPNOTSUPP,
		}
	}
	return &cmstream.Config{
		Device: d, Connect: opt.Connect, GID: opt.GID, Port: opt.Port, KeepAlive: opt.keep.Idle,
		Pin: nic.Pin, Unpin: nic.Unpin, End: nic.End,
	}, nil
}

// dialStream connects over rdma_cm.
func dialStream(ctx context.Context, nic *memory.NIC, opt *EndpointOptions, addr string) (net.Conn, error) {
	cfg, err := streamConfig(nic, opt)
	if err != nil {
		return nil, err
	}
	s, err := cmstream.Dial(ctx, cfg, addr)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// network returns the device's own network, which endpoints use instead of TCP; nil if it has
// none.
func network(nic *memory.NIC) rc.Network {
	if d, ok := nic.Device().(rc.Networked); ok {
		return d.Network()
	}
	return nil
}
