// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errs"
	"github.com/gpurdma/gpurdma/internal/handshake"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/progress"
	"github.com/gpurdma/gpurdma/internal/request"
	"github.com/gpurdma/gpurdma/internal/rma"
	"github.com/gpurdma/gpurdma/internal/slab"
	"github.com/gpurdma/gpurdma/internal/workqueue"
)

// Endpoint has connections to peers, and moves bytes. Its methods may be called from several
// goroutines at once.
type Endpoint struct {
	*progress.Progress // takes completions from the NIC
	rma.Calls          // the operations

	nic   *memory.NIC
	opt   EndpointOptions
	token uint64 // names the endpoint to peers

	life     context.Context // ends with Close
	end      context.CancelFunc
	tasks    sync.WaitGroup // goroutines, and connections that have not ended
	pending  *handshake.Pending
	accepted chan *peer

	pool *workqueue.Pool
	slab *slab.Slab

	mu        sync.Mutex
	closed    chan struct{} // nil until Close is called; closed when Close ends
	table     table
	listeners []*Listener
	shares    map[*share]struct{}    // for any peer
	live      map[*Conn]struct{}     // the connections that have not ended
	sessions  map[uint64]*Conn       // those that callers may name
	ended     workqueue.Counts       // of those that have
	blocks    workqueue.BlockCounter // of the writes of all peers
}

// NewEndpoint makes an endpoint of a NIC.
func NewEndpoint(n *memory.NIC, opt EndpointOptions) (*Endpoint, error) {
	if err := (&Endpoint{nic: n}).connOptions(&opt); err != nil {
		return nil, err
	}
	if err := n.Enter(); err != nil {
		return nil, err
	}
	e := &Endpoint{
		nic: n, opt: opt, token: memory.NewID(), shares: map[*share]struct{}{}, live: map[*Conn]struct{}{}, sessions: map[uint64]*Conn{}, accepted: make(chan *peer, opt.MaxPeers),
		pending: handshake.New(pendingHandshakes), slab: slab.New(n, opt.Depth, opt.InjectSize),
		table: table{nic: n.Name(), most: opt.MaxPeers},
	}
	e.Progress, e.Calls = progress.New(n, opt.MaxPeers), rma.On(e)
	e.pool = workqueue.NewPool(request.Home{NIC: n, Slab: e.slab}, opt.Depth, opt.Selective)
	e.life, e.end = context.WithCancel(context.Background())
	if opt.Background {
		e.tasks.Go(func() { e.Run(e.life) })
	}
	return e, nil
}

// connOptions sets the defaults of a connection's or a listener's own options.
func (e *Endpoint) connOptions(opt *EndpointOptions) error {
	if err := opt.setDefaults(); err != nil {
		return err
	}
	if d, ok := e.nic.Device().(interface{ Ports() int }); ok {
		return hasPort(e.nic.Name(), opt.Port, d.Ports())
	}
	return nil
}

// hasPort refuses a port that the NIC does not have, before the endpoint waits for peers.
func hasPort(nic string, port, ports int) error {
	if port <= ports {
		return nil
	}
	return &failure.Error{
		Op: "use a port", Device: nic, Detail: fmt.Sprintf("Port %d", port),
		Remedy: fmt.Sprintf("the NIC has 1 to %d; 0 stands for any that is active", ports), Err: failure.ErrRange,
	}
}

// Close ends all connections, in parallel, and frees all memory of the endpoint. Operations
// under way end without completions. A second call waits for the first one, and does nothing
// else.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if closed := e.closed; closed != nil {
		e.mu.Unlock()
		<-closed
		return nil
	}
	e.closed, e.table.closed = make(chan struct{}), true
	defer close(e.closed)
	peers, listeners, shares := e.table.peers, e.listeners, e.shares
	e.listeners, e.shares = nil, nil
	e.mu.Unlock()
	e.end()
	e.Stop()
	var err error
	for _, p := range peers {
		if p.conn != nil {
			p.conn.Works.Abort(e.isClosed())
		}
	}
	for _, l := range listeners {
		err = errs.Join(err, l.closeNet())
	}
	e.tasks.Wait()
	for s := range shares {
		err = errs.Join(err, e.nic.End(s.keys.Withdraw))
	}
	e.Queues().Close()
	err = errs.Join(err, e.slab.Release())
	e.nic.Leave()
	return err
}

// isClosed returns the error of an endpoint that is closed.
func (e *Endpoint) isClosed() error { return e.table.isClosed() }

// Counts returns the counters of the NIC, and of all connections of the endpoint, those that have
// ended included. No operation of a Conn waits for it.
func (e *Endpoint) Counts() workqueue.Sum {
	e.mu.Lock()
	sum := workqueue.Sum{Counts: e.ended}
	live := slices.Collect(maps.Keys(e.live))
	e.mu.Unlock()
	for _, c := range live { // if one ends now, its counters stay
		if c.isLater() { // the first rail counts for all
			c.Works.AddCounts(&sum.Counts)
		} else {
			c.Works.AddTo(&sum)
		}
	}
	n := e.nic.Stats()
	sum.Pinned, sum.Copied, sum.Blocks = n.Pinned, n.Staged, e.blocks.Blocks()
	return sum
}
