// SPDX-License-Identifier: Apache-2.0

package rc

import (
	"context"
	"net"
)

// InProcess is the Network of a net.Addr whose connections do not leave this process.
const InProcess = "in-process"

// Network makes the streams of exchanges, in place of TCP.
type Network interface {
	Dial(ctx context.Context, addr string) (net.Conn, error)
	Listen(addr string) (net.Listener, error)
}

// Networked is a Device that may have a network of its own.
type Networked interface {
	Network() Network // nil: endpoints use TCP
}
