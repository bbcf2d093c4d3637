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
func (e *Endpoint) streamConfig() (*cmstream.Config, error) {
	d, ok := e.nic.dev.(*rc.Verbs)
	if !ok {
		return nil, &dmabuf.Error{
			Op: "use rdma_cm", Device: e.nic.Name(), Detail: "the device is not one of this machine",
			Remedy: "use host:port", Err: unix.EOPNOTSUPP,
		}
	}
	return &cmstream.Config{
		Device: d, Connect: e.opt.Connect, GID: e.opt.GID, Port: e.opt.Port, KeepAlive: keepIdle,
		Pin: e.nic.pin, Unpin: e.nic.unpin, End: e.nic.end,
	}, nil
}

// dialStream connects over rdma_cm.
func (e *Endpoint) dialStream(ctx context.Context, addr string) (net.Conn, error) {
	cfg, err := e.streamConfig()
	if err != nil {
		return nil, err
	}
	s, err := cmstream.Dial(ctx, cfg, addr)
	if err != nil {
		return nil, err
	}
	return s, nil
}
