// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// streamConfig returns what streams over rdma_cm need of the endpoint. Only a device of this
// machine has rdma_cm.
func (e *Endpoint) streamConfig(opt *EndpointOptions) (*cmstream.Config, error) {
	d, ok := e.nic.Device().(*rc.Verbs)
	if !ok {
		return nil, &dmabuf.Error{
			Op: "use rdma_cm", Device: e.nic.Name(), Detail: "the device is not one of this machine",
			Remedy: "use host:port", Err: unix.EOPNOTSUPP,
		}
	}
	return &cmstream.Config{
		Device: d, Connect: opt.Connect, GID: opt.GID, Port: opt.Port, KeepAlive: opt.keep.Idle,
		Pin: e.nic.Pin, Unpin: e.nic.Unpin, End: e.nic.End,
	}, nil
}

// dialStream connects over rdma_cm.
func (e *Endpoint) dialStream(ctx context.Context, opt *EndpointOptions, addr string) (net.Conn, error) {
	cfg, err := e.streamConfig(opt)
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
func (e *Endpoint) network() rc.Network {
	if d, ok := e.nic.Device().(rc.Networked); ok {
		return d.Network()
	}
	return nil
}
