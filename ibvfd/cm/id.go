// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
)

// ID is one end of a connection, from the resolved address, or the peer's
// request, to its end (struct rdma_cm_id). Its methods may be called from several
// goroutines at once.
type ID struct {
	*handle
	local, remote netip.AddrPort
	dev           device
	asked         depths // of a request
	request       []byte // of a request: the peer's private data

	state    atomic.Int32 // idState
	qp       queuePair    // from Connect or Accept on
	contexts atomic.Int32
}

type idState int32

const (
	stateResolved  idState = iota // Connect may be called
	stateRequest                  // Accept or Reject may be
	stateBusy                     // one of them runs, or has failed
	stateConnected                // Disconnect and Wait
	stateEnded
	stateRemoved // ended, with the device
)

// Resolve finds the RDMA device by which this machine reaches the peer at addr, "host:port", and the
// route to it. Port numbers are rdma_cm's own, apart from those of TCP. from is the address of this
// machine to connect from; if it is "", the routing table decides. Resolve gives up when ctx ends,
// or after 10 s for each of its two steps if ctx has no deadline. The caller closes the ID.
func Resolve(ctx context.Context, addr, from string) (*ID, error) {
	m, err := library()
	if err != nil {
		return nil, err
	}
	return resolve(ctx, m, addr, from)
}

func resolve(ctx context.Context, m manager, addr, from string) (*ID, error) {
	var src netip.AddrPort
	if from != "" {
		var err error
		if src, err = parseSource(ctx, from); err != nil {
			return nil, err
		}
	}
	dst, err := parse(ctx, opResolve, addr, src.Addr())
	if err != nil {
		return nil, err
	}
	h, err := newHandle(m, addr)
	if err != nil {
		return nil, err
	}
	id := &ID{handle: h, remote: dst}
	if err := id.resolved(ctx, addr, src); err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

func (id *ID) resolved(ctx context.Context, addr string, src netip.AddrPort) error {
	if err := id.id.resolveAddr(src, id.remote, milliseconds(ctx)); err != nil { // no other code has the ID yet
		return refused(opResolve, addr, err)
	}
	if _, err := id.expect(ctx, opResolve, addr, eventAddrResolved); err != nil {
		return err
	}
	if err := id.id.resolveRoute(milliseconds(ctx)); err != nil {
		return refused(opRoute, addr, err)
	}
	if _, err := id.expect(ctx, opRoute, addr, eventRouteResolved); err != nil {
		return err
	}
	return id.learn(addr)
}

// learn asks the library for the addresses and the device of a bound identifier.
func (id *ID) learn(addr string) (err error) {
	id.local, id.remote = id.id.addrs()
	if id.dev, err = id.id.device(); err != nil {
		return refused(opResolve, addr, err)
	}
	if id.dev.name == "" {
		return refused(opResolve, addr, unix.ENODEV)
	}
	return nil
}

// expect waits for an event; another one is an error.
func (id *ID) expect(ctx context.Context, op, addr string, want eventType) (event, error) {
	for {
		ev, err := id.next(ctx, nil, id.see)
		switch {
		case err != nil:
			return event{}, refused(op, addr, err)
		case ev.typ == eventAddrChange || ev.typ == eventTimewaitExit:
			// A bond went over to another port, or the waiting time after a connection is over.
		case ev.typ != want || ev.status != 0:
			return event{}, unexpected(op, addr, &ev)
		default:
			return ev, nil
		}
	}
}

// see notes the connection's end, whichever call waits.
func (id *ID) see(ev *event) {
	switch {
	case ev.typ == eventDeviceRemoval:
		id.state.Store(int32(stateRemoved))
	case ev.typ == eventDisconnected && !id.ended():
		id.state.Store(int32(stateEnded))
	}
}

// ended reports whether there was a connection that is over.
func (id *ID) ended() bool { return idState(id.state.Load()) >= stateEnded }

// Device returns the RDMA device's name: "mlx5_0".
func (id *ID) Device() string { return id.dev.name }

// Port returns the number of the device's port, from 1 on.
func (id *ID) Port() int { return id.dev.port }

// LocalAddr returns this side's address and port.
func (id *ID) LocalAddr() netip.AddrPort { return id.local }

// RemoteAddr returns the peer's address and port. In a request it is what the peer claims.
func (id *ID) RemoteAddr() netip.AddrPort { return id.remote }

// PrivateData returns the private data of a peer's request: over InfiniBand and RoCE always 56 bytes,
// with zeros after the peer's own. It is nil for an ID of Resolve.
func (id *ID) PrivateData() []byte { return id.request }

// Context wraps the verbs context that rdma_cm has opened for the device. rdma_cm has one for each
// device, which its IDs share. A program that has the device open need not use it. The caller
// closes the Context before the ID.
func (id *ID) Context() (*ibvfd.Context, error) {
	if err := id.enter(); err != nil {
		return nil, err
	}
	defer id.leave()
	id.contexts.Add(1)
	c, err := id.id.context(func() { id.contexts.Add(-1) })
	if err != nil {
		id.contexts.Add(-1)
	}
	return c, err
}

// begin takes the state from one to busy.
func (id *ID) begin(op string, from idState) error {
	if id.state.CompareAndSwap(int32(from), int32(stateBusy)) {
		return nil
	}
	e := &failure.Error{Op: op, Device: id.remote.String(), Err: ErrSpent}
	switch s := idState(id.state.Load()); {
	case s == stateRequest:
		e.Detail, e.Remedy, e.Err = "it is a peer's request", "use Accept, or Reject", unix.EINVAL
	case s == stateResolved:
		e.Detail, e.Remedy, e.Err = "it is no peer's request", "use Connect", unix.EINVAL
	case s == stateConnected:
		e.Detail = "it is connected"
	case s >= stateEnded:
		e.Detail = "its connection has ended"
	}
	return e
}

// Close ends the connection, if there is one, and frees the ID. It does not wait for the peer. The
// queue pair goes to the error state; the caller closes it, before or after. While a Context of the
// ID is open Close frees nothing and answers [failure.ErrInUse]. Closing again does nothing.
func (id *ID) Close() error {
	return id.close(func() error {
		if n := id.contexts.Load(); n > 0 {
			return &failure.Error{
				Op: opDestroy, Device: id.remote.String(), Err: failure.ErrInUse,
				Detail: fmt.Sprintf("%d Context(s) not closed", n), Remedy: "close them first",
			}
		}
		if id.qp != nil {
			_ = id.qp.Err() // closed already, or its device is gone
		}
		if err := id.id.destroy(); err != nil {
			return refused(opDestroy, id.remote.String(), err)
		}
		return nil
	})
}
