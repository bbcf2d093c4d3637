// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd/cm"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// cmScheme marks rdma_cm addresses; others are TCP addresses.
const cmScheme = "rdma_cm://"

// cmAddr is an rdma_cm address.
type cmAddr netip.AddrPort

func (a cmAddr) Network() string { return "rdma_cm" }
func (a cmAddr) String() string  { return cmScheme + netip.AddrPort(a).String() }

// AddrPort returns the address without the scheme.
func (a cmAddr) AddrPort() netip.AddrPort { return netip.AddrPort(a) }

// dialCM connects a stream over rdma_cm, from an address of the NIC's: of two NICs in one
// subnet the routing table knows only one.
func (e *Endpoint) dialCM(ctx context.Context, addr string) (net.Conn, error) {
	to, from, err := e.ends(ctx, addr)
	if err != nil {
		return nil, err
	}
	id, err := cm.Resolve(ctx, to, from)
	if err != nil {
		if from != "" {
			err = fmt.Errorf("%w; from %s of %s", err, from, e.nic.Name())
		}
		return nil, err
	}
	return newStream(e.nic, id, true, e.opt.Connect), nil
}

// ends returns the addresses to which and from which rdma_cm connects; an empty from leaves
// the choice to the routing table. The routing table's choice is kept if it is the NIC's, and
// the options allow it.
func (e *Endpoint) ends(ctx context.Context, addr string) (to, from string, err error) {
	d, ok := e.nic.dev.(*verbsDevice)
	if !ok {
		return addr, "", nil
	}
	route, err := new(net.Dialer).DialContext(ctx, "udp", addr) // sends nothing
	if err != nil {
		return addr, "", nil // rdma_cm says why
	}
	defer route.Close()
	t := gidSelector{wish: e.opt.GID, port: e.opt.Port}
	t.ends(route)
	own, err := t.source(d.Context(), d.Ports())
	if err != nil || !own.IsValid() {
		return addr, "", err
	}
	return route.RemoteAddr().String(), own.String(), nil // of a host's addresses the one that was resolved
}

// listenCM listens over rdma_cm.
func (e *Endpoint) listenCM(addr string) (net.Listener, error) {
	l, err := cm.Listen(addr)
	if err != nil {
		return nil, err
	}
	if dev := l.Device(); dev != "" && dev != e.nic.Name() {
		return nil, joinClose(otherNIC(cmScheme+addr, dev, e.nic.Name()), l)
	}
	return &cmListener{l, e}, nil
}

func otherNIC(addr, is, want string) error {
	return &dmabuf.Error{
		Op: "connect over rdma_cm", Device: addr, Err: ibdev.ErrNoDevice,
		Detail: fmt.Sprintf("the address is %s's, the endpoint is %s's", is, want),
		Remedy: "open the NIC that the address belongs to, or use an address of this one's",
	}
}

// cmListener accepts streams that are not established yet.
type cmListener struct {
	l *cm.Listener
	e *Endpoint
}

func (l *cmListener) Accept() (net.Conn, error) {
	id, err := l.l.Accept(l.e.life)
	if errors.Is(err, os.ErrClosed) {
		err = net.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	return newStream(l.e.nic, id, false, l.e.opt.Connect), nil
}

func (l *cmListener) Close() error   { return l.l.Close() }
func (l *cmListener) Addr() net.Addr { return cmAddr(l.l.Addr()) }

// overCM cuts the scheme off, if there is one.
func overCM(addr string) (string, bool) { return strings.CutPrefix(addr, cmScheme) }
