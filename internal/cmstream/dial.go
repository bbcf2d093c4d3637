// SPDX-License-Identifier: Apache-2.0

package cmstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/cm"
	"github.com/gpurdma/gpurdma/ibvfd/gid"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// cmScheme marks rdma_cm addresses; others are TCP addresses.
const Scheme = "rdma_cm://"

// Cut cuts the scheme "rdma_cm://" off an address, and reports whether it was there.
func Cut(addr string) (string, bool) { return strings.CutPrefix(addr, Scheme) }

// cmAddr is an rdma_cm address.
type Addr netip.AddrPort

func (a Addr) Network() string { return "rdma_cm" }
func (a Addr) String() string  { return Scheme + netip.AddrPort(a).String() }

// AddrPort returns the address without the scheme.
func (a Addr) AddrPort() netip.AddrPort { return netip.AddrPort(a) }

// Config is what a stream needs of those who use it.
type Config struct {
	Device    *rc.Verbs
	Connect   ibvfd.ConnectAttr // of which Timeout and RetryCount are used
	GID       gid.Wish          // of the address to connect from
	Port      int               // the device's; 0 is any active port
	KeepAlive time.Duration     // between WRITEs of 0 bytes that find a peer that is gone

	// Pin reserves host memory that will be pinned, for a purpose; Unpin gives it back.
	Pin   func(size int64, what string) error
	Unpin func(size int64)
	// End calls a function that frees resources, and keeps it for later if it fails.
	End func(func() error) error
}

// dialCM connects a stream over rdma_cm, from an address of the device's: of two devices in one
// subnet the routing table knows only one. Establish must be called before its first use.
func Dial(ctx context.Context, cfg *Config, addr string) (*Stream, error) {
	to, from, err := cfg.ends(ctx, addr)
	if err != nil {
		return nil, err
	}
	id, err := cm.Resolve(ctx, to, from)
	if err != nil {
		if from != "" {
			err = fmt.Errorf("%w; from %s of %s", err, from, cfg.Device.Name())
		}
		return nil, err
	}
	return newStream(cfg, id, true), nil
}

// ends returns the addresses to which and from which rdma_cm connects; an empty from leaves
// the choice to the routing table. The routing table's choice is kept if it is the device's,
// and the options allow it.
func (cfg *Config) ends(ctx context.Context, addr string) (to, from string, err error) {
	route, err := new(net.Dialer).DialContext(ctx, "udp", addr) // sends nothing
	if err != nil {
		return addr, "", nil // rdma_cm says why
	}
	defer route.Close()
	t := rc.GIDSelector{Wish: cfg.GID, Port: cfg.Port}
	t.Ends(route)
	own, err := t.Source(cfg.Device.Context(), cfg.Device.Ports())
	if err != nil || !own.IsValid() {
		return addr, "", err
	}
	return route.RemoteAddr().String(), own.String(), nil // of a host's addresses the one that was resolved
}

// listenCM listens over rdma_cm. life ends Accept.
func Listen(life context.Context, cfg *Config, addr string) (net.Listener, error) {
	l, err := cm.Listen(addr)
	if err != nil {
		return nil, err
	}
	if dev, own := l.Device(), cfg.Device.Name(); dev != "" && dev != own {
		return nil, errors.Join(otherNIC(Scheme+addr, dev, own), l.Close())
	}
	return &cmListener{l, cfg, life}, nil
}

func otherNIC(addr, is, want string) error {
	return &failure.Error{
		Op: "connect over rdma_cm", Device: addr, Err: ibdev.ErrNoDevice,
		Detail: fmt.Sprintf("the address is %s's, and %s is to be used", is, want),
		Remedy: "open the NIC that the address belongs to, or use an address of this one's",
	}
}

// cmListener accepts streams that are not established yet.
type cmListener struct {
	l    *cm.Listener
	cfg  *Config
	life context.Context
}

func (l *cmListener) Accept() (net.Conn, error) {
	id, err := l.l.Accept(l.life)
	if errors.Is(err, os.ErrClosed) {
		err = net.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	return newStream(l.cfg, id, false), nil
}

func (l *cmListener) Close() error   { return l.l.Close() }
func (l *cmListener) Addr() net.Addr { return Addr(l.l.Addr()) }
