// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"fmt"
	"net/netip"

	"github.com/gpurdma/gpurdma/ibvfd"
)

// Connection is what a connection to a peer goes over.
type Connection struct {
	NIC  string
	Port int        // of the NIC
	GID  netip.Addr // of the port; an IPv4 address if it stands for one
	Peer netip.Addr // the peer's GID
	Why  string     // why that port and GID, of those that there are
}

// String says all of it: "port 1 of mlx5_0, 10.0.0.1 to 10.0.0.2 (…)".
func (c Connection) String() string { return c.from() + " to " + gidName(c.Peer) + c.because() }

func (c *Connection) from() string {
	return fmt.Sprintf("port %d of %s, %s", c.Port, c.NIC, gidName(c.GID))
}

// gidName is for messages: on InfiniBand a peer may be known by its LID alone.
func gidName(gid netip.Addr) string {
	if !gid.IsValid() {
		return "no GID"
	}
	return gid.String()
}

func (c *Connection) because() string {
	if c.Why == "" {
		return ""
	}
	return " (" + c.Why + ")"
}

// Connection says what the connection to a peer goes over, or went: ErrNotConnected
// if there was none.
func (e *Endpoint) Connection(id Peer) (Connection, error) {
	e.mu.Lock()
	p, err := e.lookup(id)
	var c *conn
	if err == nil {
		c = p.conn
	}
	e.mu.Unlock()
	if err != nil {
		return Connection{}, err
	}
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.path != nil {
			return *c.path, nil
		}
	}
	return Connection{}, fmt.Errorf("peer %d: %w", id, ErrNotConnected)
}

// over describes a link, whose peer may have said nothing yet.
func (e *Endpoint) over(l link, theirs [queues]ibvfd.Endpoint) *Connection {
	own := l.local()[writeQueue]
	return &Connection{e.nic.Name(), own.Port, addrOf(own), addrOf(theirs[writeQueue]), l.attr().why}
}
