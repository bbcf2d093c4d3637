// SPDX-License-Identifier: Apache-2.0

package resources_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpurdma/gpurdma/deploy/dra/clustertest"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/partners"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
)

// vendor is a driver that gives the GPUs to pods.
const vendor = "gpu.example.com"

// gpus is the pool of that driver.
func gpus(n *node.Node) resourceslice.Pool {
	var s resourceslice.Slice
	for _, g := range n.GPUs {
		address := g.PCI.String()
		d := api.Device{Name: g.ID, Attributes: map[api.QualifiedName]api.DeviceAttribute{deviceattribute.StandardDeviceAttributePCIBusID: {StringValue: &address}}}
		if g.Root != nil {
			d.Attributes[deviceattribute.StandardDeviceAttributePCIeRoot] = api.DeviceAttribute{StringValue: g.Root}
		}
		s.Devices = append(s.Devices, d)
	}
	return resourceslice.Pool{Slices: []resourceslice.Slice{s}}
}

// nics is this driver's pool: partners of some GPUs come first.
func nics(n *node.Node, others, lists bool, first ...string) resourceslice.Pool {
	var order []string // as gpus lists them
	for _, g := range n.GPUs {
		order = append(order, g.ID)
	}
	return resources.NICs{Order: partners.First(n, first, order, nil), Roots: partners.Roots(n, others), Lists: lists}.Pool(n)
}

// chosen is the pair that a claim has.
func chosen(claim *api.ResourceClaim) pairs.Pair {
	got := clustertest.Names(claim)
	if len(got) == 0 {
		return pairs.Pair{}
	}
	return pairs.Pair{GPU: got[0], NIC: strings.TrimPrefix(got[1], "nic-")}
}

// byOurRoot places pods by pcieRoot, with this driver for the NICs.
func byOurRoot(t *testing.T, n *node.Node, seed uint64, others bool) outcome {
	t.Helper()
	c := clustertest.New()
	c.Publish(vendor, gpus(n))
	c.Publish(resources.Driver, nics(n, others, false))
	root := api.FullyQualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot)
	return pods(t, n, seed, c, func([]pairs.Pair) (*api.ResourceClaim, pairs.Pair) {
		claim := c.Allocate(t, []api.DeviceConstraint{{MatchAttribute: &root}}, clustertest.Request("gpu", vendor, 1), clustertest.Request("nic", resources.Driver, 1))
		return claim, chosen(claim)
	})
}

// byList places pods by the list of a NIC's partners.
func byList(t *testing.T, n *node.Node, seed uint64) outcome {
	t.Helper()
	c := clustertest.NewWith(clustertest.Features(true))
	c.Publish(vendor, gpus(n))
	c.Publish(resources.Driver, nics(n, false, true))
	name := api.FullyQualifiedName(resources.Partners)
	return pods(t, n, seed, c, func([]pairs.Pair) (*api.ResourceClaim, pairs.Pair) {
		gpu := clustertest.Request("gpu", vendor, 1)
		gpu.Exactly.DerivedAttributes = []api.DeviceDerivedAttribute{{Name: name, Expression: fmt.Sprintf("device.attributes[%q].%s", "resource.kubernetes.io", "pciBusID")}}
		claim := c.Allocate(t, []api.DeviceConstraint{{MatchAttribute: &name}}, gpu, clustertest.Request("nic", resources.Driver, 1))
		return claim, chosen(claim)
	})
}

// tries is how often the scheduler may choose again.
const tries = 3

// byAnswer places pods that ask for any GPU and any NIC. The driver refuses, and has the scheduler choose again.
func byAnswer(t *testing.T, n *node.Node, seed uint64) outcome {
	t.Helper()
	c := clustertest.New()
	c.Publish(vendor, gpus(n))
	c.Publish(resources.Driver, nics(n, false, false))
	return pods(t, n, seed, c, func([]pairs.Pair) (*api.ResourceClaim, pairs.Pair) {
		for i := 0; ; i++ {
			claim := c.Allocate(t, nil, clustertest.Request("gpu", vendor, 1), clustertest.Request("nic", resources.Driver, 1))
			p := chosen(claim)
			if p.GPU == "" || partners.Agree(n, []string{p.GPU}, []string{p.NIC}) == nil {
				return claim, p
			}
			c.Release(claim)
			if i == tries {
				claim.Status.Allocation = nil
				return claim, pairs.Pair{}
			}
			c.Publish(resources.Driver, nics(n, false, false, p.GPU))
		}
	})
}

// Pods get NICs beside another driver's GPUs. None has a NIC that does not reach its GPU, and by lists none is
// refused while a pair is free. The table is in the document.
func TestBesideTable(t *testing.T) {
	b := newTable("| machine | GPUs, NICs | direct pairs | by lists: placed | refused | by `pcieRoot`, own: placed | refused | by `pcieRoot`, partner: placed | refused | by answers: placed | refused |\n|---|---|---|---|---|---|---|---|---|---|---|")
	all := clustertest.Topologies(t)
	var sum [4]outcome
	for i, name := range slices.Sorted(maps.Keys(all)) {
		n, seed := all[name], uint64(i)
		got := [4]outcome{byList(t, n, seed), byOurRoot(t, n, seed, false), byOurRoot(t, n, seed, true), byAnswer(t, n, seed)}
		fmt.Fprintf(b, "\n| %s | %d, %d | %d of %d |", name, len(n.GPUs), len(n.NICs), len(n.Direct()), len(n.Pairs))
		for j, o := range got {
			sum[j] = sum[j].plus(o)
			if o.bad > 0 || j == 0 && o.refused > 0 {
				t.Errorf("%s, column %d: %+v", name, j, o)
			}
			fmt.Fprintf(b, " %d | %d |", o.placed, o.refused)
		}
	}
	fmt.Fprint(b, "\n| all | | |")
	for _, o := range sum {
		fmt.Fprintf(b, " %d | %d |", o.placed, o.refused)
	}
	if sum[1].placed == 0 || sum[2].placed <= sum[1].placed || sum[3].placed == 0 {
		t.Errorf("%+v: the machines show no difference", sum)
	}
	b.check(t, "make dra-table, beside")
}
