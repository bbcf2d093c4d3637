// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/gpurdma/gpurdma/internal/exchange"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Counts returns the counters of the NIC, and of all connections of the endpoint, those that have
// ended included. No operation of a Conn waits for it.
func (e *Endpoint) Counts() workqueue.Sum {
	e.mu.Lock()
	sum := workqueue.Sum{Counts: e.ended}
	live := slices.Collect(maps.Keys(e.live))
	e.mu.Unlock()
	for _, c := range live { // if one ends now, its counters stay
		c.Works.AddTo(&sum)
	}
	n := e.nic.Stats()
	sum.Pinned, sum.Copied = n.Pinned, n.Staged
	return sum
}

// Peer returns what is known of the peer.
func (c *Conn) Peer() PeerInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info
}

// LocalAddr returns this side's address of the exchange.
func (c *Conn) LocalAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tcp == nil {
		return nil
	}
	return c.tcp.LocalAddr()
}

// Path returns the path of the connection.
func (c *Conn) Path() ConnPath {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path == nil {
		return ConnPath{NIC: c.e.nic.Name()}
	}
	return *c.path
}

// Depth returns the number of operations that may be under way.
func (c *Conn) Depth() int { return c.opt.Depth }

// Lost returns the number of links that the connection has lost and replaced.
func (c *Conn) Lost() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.links)
}

// PeerTimeout returns EndpointOptions.PeerTimeout.
func (c *Conn) PeerTimeout() time.Duration { return c.opt.PeerTimeout }

// Up reports whether the connection can be used: it has not ended, and its port is active, as
// far as that is known.
func (c *Conn) Up() bool {
	s := c.Works.State()
	return s.Up && s.Link.Down() == nil // Down may ask the kernel
}

// Done returns a channel that is closed when the connection has ended, and all earlier operations
// of the peer have arrived.
func (c *Conn) Done() <-chan struct{} { return c.ended }

// OnEnd makes the connection call f when it has ended: once, before Done's channel is closed, or
// now if it has ended. f must not block.
func (c *Conn) OnEnd(f func()) {
	c.mu.Lock()
	over := c.finished
	if !over {
		c.onEnd = f
	}
	c.mu.Unlock()
	if over {
		f()
	}
}

// Err returns why the connection has begun to end, nil before that. Until Done is closed the reason
// may still become more precise.
func (c *Conn) Err() error { return c.Works.Err() }

// rejectedHere is the error of a caller that this side's program has rejected. It is ErrRejected.
type rejectedHere string

func (r rejectedHere) Error() string { return fmt.Sprintf("rejected by this side: %q", string(r)) }

func (rejectedHere) Is(target error) bool { return target == ErrRejected }

// Reject returns an error for EndpointOptions.Admit. The caller receives its text, of at most 256
// bytes.
func Reject(text string) error {
	return exchange.NewRejection(text, rejectedHere(exchange.Bounded(text)))
}
