// SPDX-License-Identifier: Apache-2.0

package gpurdma

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/handshake"
)

// Endpoint has connections to peers, and moves bytes. Its methods may be called
// from several goroutines at once.
type Endpoint struct {
	nic   *NIC
	opt   EndpointOptions
	token uint64 // names the endpoint to peers

	life     context.Context // ends with Close
	end      context.CancelFunc
	tasks    sync.WaitGroup // goroutines
	pending  *handshake.Pending
	accepted chan *peer

	wake chan struct{} // who has taken what is in it looks for completions

	mu        sync.Mutex
	closed    bool
	sleepers  int     // in Wait
	peers     []*peer // in the order of their numbers
	lastPeer  Peer
	listeners []net.Listener
	done      fifo[Completion]
	free      []*op
	slab      *slab
	shares    map[*share]struct{}
	wc        []ibvfd.WC
}

// NewEndpoint makes an endpoint.
func (n *NIC) NewEndpoint(opt EndpointOptions) (*Endpoint, error) {
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	if d, ok := n.dev.(*verbsDevice); ok {
		if err := hasPort(d.name(), opt.Port, d.attr.Ports); err != nil {
			return nil, err
		}
	}
	if err := n.enter(); err != nil {
		return nil, err
	}
	e := &Endpoint{
		nic: n, opt: opt, token: newID(), shares: map[*share]struct{}{}, wc: make([]ibvfd.WC, 64),
		pending: handshake.New(pendingHandshakes), accepted: make(chan *peer, opt.MaxPeers), wake: make(chan struct{}, 1),
	}
	e.life, e.end = context.WithCancel(context.Background())
	return e, nil
}

// hasPort refuses a port that a NIC does not have, before anybody is waited for.
func hasPort(nic string, port, ports int) error {
	if port <= ports {
		return nil
	}
	return &dmabuf.Error{
		Op: "make an endpoint", Device: nic, Detail: fmt.Sprintf("Port %d", port),
		Remedy: fmt.Sprintf("the NIC has 1 to %d; 0 is any that is active", ports), Err: dmabuf.ErrRange,
	}
}

// Close ends all connections and lets go of all memory. What was under way is
// dropped without completions. Closing again does nothing.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.end()
	for _, p := range e.peers {
		if p.conn != nil {
			p.conn.abort(os.ErrClosed)
		}
	}
	e.closed = true
	var err error
	for _, l := range e.listeners {
		err = joined(err, l.Close())
	}
	for s := range e.shares {
		err = joined(err, e.nic.end(s.close))
	}
	e.shares, e.done = nil, fifo[Completion]{}
	e.rouse()
	if e.slab != nil {
		err = joined(err, e.slab.buf.Release())
	}
	e.mu.Unlock()
	e.tasks.Wait()
	e.nic.leave()
	return err
}
