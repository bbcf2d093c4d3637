// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	api "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpurdma/gpurdma/deploy/dra/cdi"
	"github.com/gpurdma/gpurdma/deploy/dra/checkpoint"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// PrepareResourceClaims prepares the devices of claims for the pods that start. A claim that was prepared is
// prepared again with the same result.
func (p *Plugin) PrepareResourceClaims(ctx context.Context, claims []*api.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	n := p.look(ctx)
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		devices, err := p.prepareFree(ctx, &n, c)
		if err != nil {
			p.Log.Error("prepare a claim", "claim", c.Namespace+"/"+c.Name, "error", err)
		}
		out[c.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	p.Again()
	return out, nil
}

// prepare writes down that a claim has its devices, and makes the specification for the container's runtime.
func (p *Plugin) prepare(ctx context.Context, n *node.Node, c *api.ResourceClaim) (out []kubeletplugin.Device, err error) {
	if c.Status.Allocation == nil {
		return nil, errors.New("the claim has no devices: the scheduler has not placed it")
	}
	uid := string(c.UID)
	find := deviceOf
	if p.Beside != nil {
		s, err := checkpoint.Read(p.State, p.Boot)
		if err != nil {
			return nil, err
		}
		if was, prepared := s.Claims[uid]; !prepared || was.Boot != p.Boot {
			if find, err = p.beside(ctx, n, c); err != nil {
				return nil, err
			}
		}
	}
	err = checkpoint.Change(p.State, p.Boot, func(s *checkpoint.State) error {
		claim, prepared := s.Claims[uid]
		if !prepared || claim.Boot != p.Boot { // a pair may have become worse with the restart of the machine
			claim = checkpoint.Claim{Namespace: c.Namespace, Name: c.Name, Boot: p.Boot}
			for _, r := range c.Status.Allocation.Devices.Results {
				if r.Driver != resources.Driver {
					continue
				}
				d, err := find(n, s, uid, r)
				if err != nil {
					return err
				}
				claim.Devices = append(claim.Devices, d)
			}
		}
		if err := free(n, s, claim); err != nil {
			return err
		}
		if err := p.CDI.Write(uid, claim, n, p.Hooks...); err != nil {
			return err
		}
		for _, d := range claim.Devices {
			out = append(out, kubeletplugin.Device{Requests: []string{d.Request}, PoolName: d.Pool, DeviceName: d.Name, CDIDeviceIDs: []string{cdi.ID(uid, d.Name)}})
		}
		s.Claims[uid] = claim
		return nil
	})
	if err != nil {
		out = nil
	}
	return out, err
}

// deviceOf finds the pairs of an allocated device, and refuses one that is not direct now, or that another claim has.
func deviceOf(n *node.Node, s *checkpoint.State, uid string, r api.DeviceRequestAllocationResult) (checkpoint.Device, error) {
	d := checkpoint.Device{Request: r.Request, Admin: r.AdminAccess != nil && *r.AdminAccess, Pool: r.Pool, Name: r.Device}
	var err error
	if d.Pairs, err = pairsOf(n, s, uid, r.Device); err != nil {
		return d, err
	}
	for _, x := range d.Pairs {
		if err := good(n, x); err != nil {
			return d, err
		}
		if other, has := s.Holder(uid, x); has && !d.Admin {
			return d, fmt.Errorf("GPU %s or NIC %s is with the claim %s/%s; delete the pod, so that it is placed again", x.GPU, x.NIC, other.Namespace, other.Name)
		}
	}
	return d, nil
}

// good returns an error for a pair that is not direct now. It names the NICs that the GPU reaches instead.
func good(n *node.Node, x pairs.Pair) error {
	now, ok := n.Pair(x.GPU, x.NIC)
	if ok && now.Outcome == chain.Direct {
		return nil
	}
	why := "one of the two is not there"
	if ok {
		why = now.Why
	}
	var others []string
	for _, q := range n.Direct() {
		if q.GPU == x.GPU {
			others = append(others, n.NIC(q.NIC).Name)
		}
	}
	instead := "no NIC reaches this GPU now"
	if len(others) > 0 {
		instead = "the GPU is reached by " + strings.Join(others, ", ")
	}
	return fmt.Errorf("GPU %s and NIC %s are not direct any more: %s; %s; delete the pod, so that it is placed again", x.GPU, x.NIC, why, instead)
}

// UnprepareResourceClaims takes devices back. A claim that is not known was given back before.
func (p *Plugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		uid := string(c.UID)
		out[c.UID] = checkpoint.Change(p.State, p.Boot, func(s *checkpoint.State) error {
			if err := p.CDI.Remove(uid); err != nil {
				return err
			}
			delete(s.Claims, uid)
			return nil
		})
	}
	p.Again()
	return out, nil
}
