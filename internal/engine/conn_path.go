// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"net/netip"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/rc"
)

// ConnPath describes the path of a connection to a peer.
type ConnPath struct {
	NIC  string
	Port int        // of the NIC
	GID  netip.Addr // of the port; the IPv4 address that it holds, if it does
	Peer netip.Addr // the peer's GID
	Why  string     // why this port and GID were chosen
}

// String returns all fields: "port 1 of mlx5_0, 10.0.0.1 to 10.0.0.2 (…)".
func (c ConnPath) String() string { return c.from() + " to " + gidName(c.Peer) + c.because() }

func (c *ConnPath) from() string {
	return fmt.Sprintf("port %d of %s, %s", c.Port, c.NIC, gidName(c.GID))
}

// gidName formats a GID for messages: on InfiniBand only a peer's LID may be known.
func gidName(gid netip.Addr) string {
	if !gid.IsValid() {
		return "no GID"
	}
	return gid.String()
}

func (c *ConnPath) because() string {
	if c.Why == "" {
		return ""
	}
	return " (" + c.Why + ")"
}

// pathOver describes a link of a NIC; theirs may be zero before the peer's hello.
func pathOver(nic string, l rc.Link, theirs [rc.Queues]ibvfd.Endpoint) *ConnPath {
	own := l.Local()[rc.WriteQueue]
	return &ConnPath{nic, own.Port, rc.AddrOf(own), rc.AddrOf(theirs[rc.WriteQueue]), l.Attr().Why}
}
