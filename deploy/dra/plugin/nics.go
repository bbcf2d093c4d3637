// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/partners"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// Beside is how the driver gives NICs to pods whose GPUs another driver gives them.
type Beside struct {
	Vendors     []string                                           // drivers whose devices are GPUs
	OthersRoots bool                                               // a NIC may have the pcieRoot of GPUs that it reaches; see partners.Roots
	Lists       bool                                               // the cluster has attributes that are lists
	Published   func(context.Context) ([]api.ResourceSlice, error) // by all drivers, for this node
}

// order returns the IDs of the GPUs whose claims were refused, and those of all GPUs in the order in which the scheduler
// tries them.
func (p *Plugin) order(ctx context.Context, n *node.Node) (wait, all []string) {
	published, err := p.Beside.Published(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.gpus = partners.Order(n, resources.Driver, published)
	} else if ctx.Err() == nil { // the order is a preference: the last one stays
		p.Log.Warn("it is not known in which order the scheduler tries the GPUs", "error", err)
	}
	return p.wait.gpus(time.Now()), p.gpus
}

// nics returns the pool of a node that gives NICs to pods. order has the IDs of the NICs.
func (p *Plugin) nics(n *node.Node, s *checkpoint.State, order []string) resourceslice.Pool {
	p.mu.Lock()
	closed := p.wait.closed(time.Now())
	p.mu.Unlock()
	if s.Swept != s.Boot { // after a start of the machine, its NICs may have other names
		s.Swept = s.Boot
		s.NICs = slices.DeleteFunc(s.NICs, func(id string) bool { return n.NIC(id).ID == "" })
	}
	o := resources.NICs{Order: order, Known: s.NICs, Roots: partners.Roots(n, p.Beside.OthersRoots), Lists: p.Beside.Lists, Closed: closed}
	for _, id := range o.Offered(n) {
		if !slices.Contains(s.NICs, id) {
			s.NICs = append(s.NICs, id)
		}
	}
	return o.Pool(n)
}

// beside returns how the NICs of a claim are prepared, or why they are not. The kubelet asks after the pod was bound, so this is
// where a claim is refused whose devices have changed since, and that of a cluster without binding conditions.
func (p *Plugin) beside(ctx context.Context, n *node.Node, c *api.ResourceClaim) (func(*node.Node, *checkpoint.State, string, api.DeviceRequestAllocationResult) (checkpoint.Device, error), error) {
	gpus, no, err := p.agree(ctx, n, c)
	if err != nil {
		return nil, err
	}
	if errors.Is(no, partners.ErrNotPublished) {
		return nil, fmt.Errorf("%w; the kubelet asks again", no)
	}
	if no != nil {
		return nil, fmt.Errorf("%w; delete the pod, so that it is placed again", no)
	}
	return func(n *node.Node, s *checkpoint.State, uid string, r api.DeviceRequestAllocationResult) (checkpoint.Device, error) {
		d := checkpoint.Device{Request: r.Request, Admin: r.AdminAccess != nil && *r.AdminAccess, Pool: r.Pool, Name: r.Device, OnlyNIC: true}
		id, err := nicOf(n, r.Device)
		if err != nil {
			return d, err
		}
		// Parts of a GPU may be with several claims: that is for its own driver to say.
		if other, has := s.Holder(uid, pairs.Pair{NIC: id}); has && !d.Admin {
			return d, fmt.Errorf("NIC %s is with the claim %s/%s; delete the pod, so that it is placed again", n.NIC(id).Name, other.Namespace, other.Name)
		}
		for _, g := range gpus {
			if x := (pairs.Pair{GPU: g, NIC: id}); good(n, x) == nil {
				d.Pairs = append(d.Pairs, x)
			}
		}
		if len(gpus) == 0 {
			d.Pairs = []pairs.Pair{{NIC: id}}
		}
		return d, nil
	}, nil
}

// Agree looks at the machine, and returns why the NICs of a claim are no partners of its GPUs, or nil. After a no, the
// partners of those GPUs are the first in the slices: the scheduler, which chooses the same GPUs as long as nothing
// changes, then chooses other NICs.
func (p *Plugin) Agree(ctx context.Context, c *api.ResourceClaim) (no, err error) {
	n := p.look(ctx)
	gpus, no, err := p.agree(ctx, &n, c)
	switch {
	case err != nil:
	case no != nil:
		err = p.refuse(&n, gpus, c)
	default:
		p.accept(gpus)
	}
	return no, err
}

// agree returns the GPUs of a claim, and why the claim's NICs are no partners of them.
func (p *Plugin) agree(ctx context.Context, n *node.Node, c *api.ResourceClaim) (gpus []string, no, err error) {
	if c.Status.Allocation == nil {
		return nil, nil, errors.New("the claim has no devices: the scheduler has not placed it")
	}
	published, err := p.Beside.Published(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read which GPUs the claim has: %w", err)
	}
	gpus, no = partners.GPUs(n, resources.Driver, p.Beside.Vendors, published, c)
	if no != nil {
		return nil, no, nil
	}
	var nics []string
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != resources.Driver {
			continue
		}
		id, err := nicOf(n, r.Device)
		if err != nil {
			return gpus, err, nil
		}
		nics = append(nics, id)
	}
	return gpus, partners.Agree(n, gpus, nics), nil
}

// nicOf returns the ID of the NIC that is on the machine now, by the name of its device.
func nicOf(n *node.Node, device string) (string, error) {
	i := slices.IndexFunc(n.NICs, func(x node.NIC) bool { return resources.NICName(x.ID) == device })
	if i < 0 {
		return "", fmt.Errorf("device %s is not there: this node has no such NIC now", device)
	}
	return n.NICs[i].ID, nil
}

// accept ends the turns of some GPUs.
func (p *Plugin) accept(gpus []string) {
	p.mu.Lock()
	changed := p.wait.accept(gpus)
	p.mu.Unlock()
	if changed {
		p.Again()
	}
}

// refuse gives the GPUs of a claim a turn. One whose partners pods have is given none: no order of NICs helps it.
func (p *Plugin) refuse(n *node.Node, gpus []string, c *api.ResourceClaim) error {
	s, err := checkpoint.Read(p.State, p.Boot)
	if err != nil {
		return err
	}
	taken := s.Taken().All()
	gpus = slices.DeleteFunc(gpus, func(g string) bool {
		return !slices.ContainsFunc(n.Direct(), func(x pairs.Pair) bool {
			return x.GPU == g && !slices.ContainsFunc(taken, pairs.Pair{NIC: x.NIC}.Shares)
		})
	})
	p.mu.Lock()
	closes := p.wait.refuse(gpus, p.place(c), time.Now())
	p.mu.Unlock()
	if closes {
		time.AfterFunc(closedFor, p.Again) // which opens the NICs
	}
	p.Again()
	return nil
}

// place is where the first NIC of a claim stands among the published ones. The caller has the lock.
func (p *Plugin) place(c *api.ResourceClaim) (at int) {
	if p.pool == nil {
		return 0
	}
	for _, s := range p.pool.Slices {
		for _, d := range s.Devices {
			if slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(r api.DeviceRequestAllocationResult) bool {
				return r.Driver == resources.Driver && r.Device == d.Name
			}) {
				return at
			}
			at++
		}
	}
	return at
}
