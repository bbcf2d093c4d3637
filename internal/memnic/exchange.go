// SPDX-License-Identifier: Apache-2.0

package memnic

import (
	"context"
	"net"

	"github.com/gpurdma/gpurdma/internal/memstream"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// CutExchanges cuts streams, and prevents new ones: all streams of the network; those of one
// device's machine with others, as if it were lost; or those between the machines of two or more
// devices.
func (n *Network) CutExchanges(how memstream.Loss, among ...*Device) {
	var hosts []memstream.Host
	for _, d := range among {
		hosts = append(hosts, d.host)
	}
	n.streams.Cut(how, hosts...)
}

// MendExchanges undoes all calls of CutExchanges. Silent streams go on, unless they have failed
// meanwhile.
func (n *Network) MendExchanges() { n.streams.Mend() }

// Listen listens on an address, "host:port", of no device; port 0 chooses one.
func (n *Network) Listen(addr string) (net.Listener, error) { return n.streams.Listen(addr, nil) }

// DialContext connects to a listener. It returns ECONNREFUSED if the address has no listener.
func (n *Network) DialContext(ctx context.Context, addr string) (net.Conn, error) {
	return n.streams.Dial(ctx, addr, nil, "memory")
}

// Network returns the streams of the device, nil if endpoints are to use TCP.
func (d *Device) Network() rc.Network {
	if !d.net.opt.exchanges {
		return nil
	}
	return exchange{d}
}

// exchange is a device as an rc.Network.
type exchange struct{ d *Device }

func (x exchange) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return x.d.net.streams.Dial(ctx, addr, x.d.host, x.d.GID().String())
}

func (x exchange) Listen(addr string) (net.Listener, error) {
	return x.d.net.streams.Listen(addr, x.d.host)
}
