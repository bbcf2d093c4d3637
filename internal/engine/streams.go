// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/internal/cmstream"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// streamConfig returns what streams over rdma_cm need of a NIC. Only a device of this
// machine has rdma_cm.
func streamConfig(nic *memory.NIC, opt *EndpointOptions) (*cmstream.Config, error) {
	d, ok := nic.Device().(*rc.Verbs)
	if !ok {
		return nil, &dmabuf.Error{
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
