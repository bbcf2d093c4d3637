// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/cm"
)

// cmScheme marks addresses at which rdma_cm connects; others are TCP's.
const cmScheme = "rdma_cm://"

// cmAddr is an address of rdma_cm's.
type cmAddr netip.AddrPort

func (a cmAddr) Network() string { return "rdma_cm" }
func (a cmAddr) String() string  { return cmScheme + netip.AddrPort(a).String() }

// dialCM connects a stream over rdma_cm.
func (e *Endpoint) dialCM(ctx context.Context, addr string) (net.Conn, error) {
	id, err := cm.Resolve(ctx, addr, "")
	if err != nil {
		return nil, err
	}
	return newStream(e.nic, id, true, e.opt.Connect), nil
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
		Op: "connect over rdma_cm", Device: addr, Err: ibvfd.ErrNoDevice,
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
