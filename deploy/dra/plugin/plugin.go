// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpurdma/gpurdma/deploy/dra/cdi"
	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/partners"
	"github.com/gpurdma/gpurdma/deploy/dra/proving"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Config is what a driver on a node needs.
type Config struct {
	Node     string                                                                   // its name, which is that of the pool, too
	Look     func(context.Context) (node.Node, error)                                 // at the machine, as it is now
	Publish  func(ctx context.Context, resources resourceslice.DriverResources) error // set before Run
	State    string                                                                   // the file of package checkpoint
	Boot     string                                                                   // the ID of this start of the machine
	CDI      cdi.Dir
	Hooks    []*specs.Hook // of the containers of each claim
	Live     *Live         // nil if no pair is tried
	Partners int           // pairs of each GPU that are published at most, besides those that pods have
	Beside   *Beside       // another driver gives the GPUs to pods; nil where this one gives pairs
	Every    time.Duration // between two looks
	Log      *slog.Logger
	Fatal    func(error) // the driver cannot go on, and is to be started again
}

// Plugin is the driver on a node.
type Plugin struct {
	Config
	again    chan struct{} // gets a value when what pods have has changed
	schedule proving.Schedule

	mu        sync.Mutex
	pool      *resourceslice.Pool     // the one that was published last; nil before the first
	last      node.Node               // of the last look
	seen      time.Time               // of that look
	connected time.Time               // when the kubelet has asked for the health of devices, which it does once when it starts
	stop      context.CancelCauseFunc // ends the proof that runs; nil if none does
	wait      turns                   // of the GPUs whose claims were refused
	gpus      []string                // IDs of the GPUs that other drivers publish, in the order in which the scheduler tries them
}

var _ kubeletplugin.DRAPlugin = (*Plugin)(nil)

// New makes a driver. It removes what an earlier process has left for claims that it did not finish.
func New(c Config) (*Plugin, error) {
	// With the lock: an older process, which this one replaces, may be writing a specification for a claim that comes into
	// the file after that.
	if err := checkpoint.Change(c.State, c.Boot, func(s *checkpoint.State) error { return c.CDI.Sweep(s.Claims) }); err != nil {
		return nil, err
	}
	p := &Plugin{Config: c, again: make(chan struct{}, 1)}
	if c.Live != nil {
		p.schedule.Period = c.Live.Again
	}
	return p, nil
}

// Run looks and publishes: at once, after each change of what pods have, and every so often. It returns when the
// context ends.
func (p *Plugin) Run(ctx context.Context) {
	tick := time.NewTicker(p.Every)
	defer tick.Stop()
	defer p.startProofs(ctx)()
	for {
		if err := p.publish(ctx); err != nil && ctx.Err() == nil {
			p.Log.Error("publish the pairs of this node", "error", err)
		}
		select {
		case <-p.again:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look looks at the machine. Of one that cannot be read in part, it returns the part that could be.
func (p *Plugin) look(ctx context.Context) node.Node {
	n, err := p.Look(ctx)
	if err != nil {
		p.Log.Warn("not all of the machine could be read", "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.seen = n, time.Now()
	return n
}

// publish looks, and publishes what has changed. It remembers each device before others can see it: a claim of
// it may come at any time after that.
func (p *Plugin) publish(ctx context.Context) error {
	n := p.look(ctx)
	var wait, order []string
	if p.Beside != nil {
		wait, order = p.order(ctx, &n)
	}
	var pool resourceslice.Pool
	if err := checkpoint.Change(p.State, p.Boot, func(s *checkpoint.State) error {
		if p.Beside != nil {
			pool = p.nics(&n, s, partners.First(&n, wait, order, s.Taken().All()))
			return nil
		}
		pool = p.pairs(&n, s)
		return p.occupy(s, pool)
	}); err != nil {
		return err
	}
	p.mu.Lock()
	same := p.pool != nil && equality.Semantic.DeepEqual(*p.pool, pool)
	p.mu.Unlock()
	if same {
		return nil
	}
	if err := p.Publish(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{p.Node: pool}}); err != nil {
		return err
	}
	p.mu.Lock()
	p.pool = &pool
	p.mu.Unlock()
	return nil
}

// pairs returns the pool of a node that gives pairs to pods.
func (p *Plugin) pairs(n *node.Node, s *checkpoint.State) resourceslice.Pool {
	s.Sweep(func(x pairs.Pair) bool { _, ok := n.Pair(x.GPU, x.NIC); return ok }, mostKnown/2)
	o := pairs.Make(n.Direct(), s.Taken(), p.Partners)
	o.Sets = slices.DeleteFunc(o.Sets, func(x pairs.Set) bool {
		return len(s.Known) >= mostKnown && s.Known[resources.SetName(x)] == nil
	})
	pool := resources.Pairs(n, o, s.Known, bad(n, s))
	for _, x := range o.Pairs {
		s.Known[resources.Name(x)] = []pairs.Pair{x}
	}
	for _, x := range o.Sets {
		s.Known[resources.SetName(x)] = x
	}
	return pool
}

// mostKnown bounds the devices of a node, since none leaves the slices before the node is started again: with so many,
// no new set of pairs is offered. All pairs of 16 GPUs and 16 NICs are 256.
const mostKnown = 1024

// bad returns the pairs that were published, or that pods have, and that are not direct any more.
func bad(n *node.Node, s *checkpoint.State) (list []pairs.Pair) {
	all := s.Taken().All()
	for _, known := range s.Known {
		all = append(all, known...)
	}
	for _, x := range all {
		if now, ok := n.Pair(x.GPU, x.NIC); ok && now.Outcome == chain.Direct || slices.ContainsFunc(list, x.Same) {
			continue
		}
		list = append(list, pairs.Pair{GPU: x.GPU, NIC: x.NIC})
	}
	slices.SortFunc(list, pairs.Pair.Compare)
	return list
}

// Again makes Run look and publish again.
func (p *Plugin) Again() {
	select {
	case p.again <- struct{}{}:
	default:
	}
}

// HandleError says what went wrong in the background: slices that the API server refuses, above all.
func (p *Plugin) HandleError(ctx context.Context, err error, msg string) {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return // the driver ends
	}
	p.Log.Error(msg, "error", err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.Fatal(fmt.Errorf("%s: %w", msg, err))
	}
}
