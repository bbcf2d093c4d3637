// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"context"
	"net/netip"
)

// Listener takes connection requests. Its methods may be called from several
// goroutines at once.
type Listener struct {
	*handle
	m    manager
	addr netip.AddrPort
	dev  device
}

// backlog is how many requests the kernel keeps for Accept.
const backlog = 128

// Listen takes connection requests at addr, "host:port": on the RDMA device that has this address,
// or on all devices if host is empty. With port 0 the kernel chooses one. The caller closes the
// Listener.
func Listen(addr string) (*Listener, error) {
	m, err := library()
	if err != nil {
		return nil, err
	}
	return listen(m, addr)
}

func listen(m manager, addr string) (_ *Listener, err error) {
	at, err := parse(context.Background(), opBind, addr, netip.Addr{})
	if err != nil {
		return nil, err
	}
	h, err := newHandle(m, addr)
	if err != nil {
		return nil, err
	}
	l := &Listener{handle: h, m: m, addr: at}
	defer func() {
		if err != nil {
			_ = l.Close()
		}
	}()
	if err := h.id.bind(at); err != nil {
		return nil, refused(opBind, addr, err)
	}
	if err := h.id.listen(backlog); err != nil {
		return nil, refused(opListen, addr, err)
	}
	l.addr, _ = h.id.addrs()
	if l.dev, err = h.id.device(); err != nil {
		return nil, refused(opListen, addr, err)
	}
	return l, nil
}

// Addr returns the address and port at which the Listener takes requests.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Device returns the RDMA device's name, "" if the Listener takes requests on all devices.
func (l *Listener) Device() string { return l.dev.name }

// Accept waits for a request and returns an ID, which the caller answers with [ID.Accept] or
// [ID.Reject] and closes. The error is ctx's, [os.ErrClosed] after Close, or ENODEV if the device is
// being removed: no more requests come then. Any other error, such as EMFILE, is about one request,
// which the Listener has refused: the caller may call Accept again.
func (l *Listener) Accept(ctx context.Context) (*ID, error) {
	for {
		var id *ID
		var failed error
		// Within the turn of events: a Close of the Listener waits for it.
		ev, err := l.next(ctx, nil, func(ev *event) {
			if ev.typ == eventConnectRequest && ev.id != nil {
				id, failed = l.take(ev)
			}
		})
		switch {
		case err != nil:
			return nil, refused(opEvent, l.addr.String(), err)
		case id != nil || failed != nil:
			return id, failed
		case ev.typ == eventDeviceRemoval:
			return nil, unexpected(opEvent, l.addr.String(), &ev)
		}
	}
}

// take gives a request an event channel of its own, or refuses it.
func (l *Listener) take(ev *event) (*ID, error) {
	h, err := openChannel(l.m)
	if err != nil {
		_ = ev.id.reject(nil)
		_ = ev.id.destroy()
		return nil, err
	}
	id := &ID{handle: h, asked: ev.asked, request: ev.data}
	id.state.Store(int32(stateRequest))
	if err := ev.id.migrate(h.ch); err != nil {
		h.dropChannel()
		_ = ev.id.destroy()
		return nil, refused(opMigrate, l.addr.String(), err)
	}
	h.id = ev.id
	if err := id.learn(l.addr.String()); err != nil {
		_ = id.Close()
		return nil, err
	}
	return id, nil
}

// Close ends the Listener, and not the IDs that Accept has returned. A call that waits in
// Accept returns [os.ErrClosed]. The kernel refuses the requests that were not taken.
// Closing again does nothing.
func (l *Listener) Close() error {
	return l.close(func() error {
		if err := l.id.destroy(); err != nil {
			return refused(opDestroy, l.addr.String(), err)
		}
		return nil
	})
}
