// SPDX-License-Identifier: Apache-2.0

package resources_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	api "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpurdma/gpurdma/deploy/dra/clustertest"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// outcome counts pods that ask for one GPU and one NIC.
type outcome struct {
	placed  int
	bad     int // of these, those whose pair is not direct
	refused int // though a direct pair was free
	full    int // no direct pair was free, and the pod was refused
}

func (o outcome) plus(p outcome) outcome {
	return outcome{o.placed + p.placed, o.bad + p.bad, o.refused + p.refused, o.full + p.full}
}

// asked is how many pods there are.
const asked = 200

// pods lets pods come and go: place places one, and returns its GPU and NIC.
func pods(t *testing.T, n *node.Node, seed uint64, c *clustertest.Cluster, place func(running []pairs.Pair) (*api.ResourceClaim, pairs.Pair)) (o outcome) {
	t.Helper()
	random := rand.New(rand.NewPCG(11, seed))
	var running []pairs.Pair
	var claims []*api.ResourceClaim
	for range asked {
		if len(running) > 0 && random.IntN(5) < 2 {
			i := random.IntN(len(running))
			c.Release(claims[i])
			running, claims = slices.Delete(running, i, i+1), slices.Delete(claims, i, i+1)
		}
		free := mostOf(n, func(p pairs.Pair) bool {
			return !slices.ContainsFunc(running, func(q pairs.Pair) bool { return p.GPU == q.GPU || p.NIC == q.NIC })
		})
		claim, pair := place(running)
		got := clustertest.Names(claim)
		switch {
		case len(got) == 0 && free > 0:
			o.refused++
		case len(got) == 0:
			o.full++
		default:
			o.placed++
			if p, _ := n.Pair(pair.GPU, pair.NIC); p.Outcome != chain.Direct {
				o.bad++
			}
			running, claims = append(running, pair), append(claims, claim)
		}
	}
	return o
}

// byPairs places pods by the pairs of this driver.
func byPairs(t *testing.T, n *node.Node, seed uint64) outcome {
	t.Helper()
	c := clustertest.New()
	return pods(t, n, seed, c, func(running []pairs.Pair) (*api.ResourceClaim, pairs.Pair) {
		o := pairs.Make(n.Direct(), pairs.Taken{Pairs: running}, 3)
		c.Publish(resources.Driver, resources.Pairs(n, o, nil, nil))
		claim := c.Allocate(t, nil, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(1)))
		got := clustertest.Names(claim)
		if len(got) == 0 {
			return claim, pairs.Pair{}
		}
		return claim, o.Pairs[slices.IndexFunc(o.Pairs, func(p pairs.Pair) bool { return resources.Name(p) == got[0] })]
	})
}

// vendors is the pool of a driver that publishes GPUs, or NICs, by themselves.
func vendors(ids []string, roots []*string) resourceslice.Pool {
	var s resourceslice.Slice
	for i, id := range ids {
		d := api.Device{Name: id, Attributes: map[api.QualifiedName]api.DeviceAttribute{}}
		if roots[i] != nil {
			d.Attributes[deviceattribute.StandardDeviceAttributePCIeRoot] = api.DeviceAttribute{StringValue: roots[i]}
		}
		s.Devices = append(s.Devices, d)
	}
	return resourceslice.Pool{Slices: []resourceslice.Slice{s}}
}

// byRoot places pods by pcieRoot alone, with one driver for GPUs and another one for NICs.
func byRoot(t *testing.T, n *node.Node, seed uint64) outcome {
	t.Helper()
	c := clustertest.New()
	var gpus, nics []string
	var gpuRoots, nicRoots []*string
	for _, g := range n.GPUs {
		gpus, gpuRoots = append(gpus, g.ID), append(gpuRoots, g.Root)
	}
	for _, x := range n.NICs {
		nics, nicRoots = append(nics, x.ID), append(nicRoots, x.Root)
	}
	c.Publish("gpu.example.com", vendors(gpus, gpuRoots))
	c.Publish("nic.example.com", vendors(nics, nicRoots))
	root := api.FullyQualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot)
	return pods(t, n, seed, c, func([]pairs.Pair) (*api.ResourceClaim, pairs.Pair) {
		claim := c.Allocate(t, []api.DeviceConstraint{{MatchAttribute: &root}}, clustertest.Request("gpu", "gpu.example.com", 1), clustertest.Request("nic", "nic.example.com", 1))
		got := clustertest.Names(claim)
		if len(got) == 0 {
			return claim, pairs.Pair{}
		}
		return claim, pairs.Pair{GPU: got[0], NIC: got[1]}
	})
}

// The same pods are placed by pairs and by pcieRoot alone. By pairs none is refused while a direct pair
// is free, and none has a pair that is not direct. The table is in the document.
func TestTable(t *testing.T) {
	b := newTable("| machine | GPUs, NICs | direct pairs | by pairs: placed | not direct | refused | by `pcieRoot`: placed | not direct | refused |\n|---|---|---|---|---|---|---|---|---|")
	all := clustertest.Topologies(t)
	var sum [2]outcome
	for i, name := range slices.Sorted(maps.Keys(all)) {
		n := all[name]
		ours, theirs := byPairs(t, n, uint64(i)), byRoot(t, n, uint64(i))
		if ours.bad > 0 || ours.refused > 0 {
			t.Errorf("%s: %+v", name, ours)
		}
		sum[0], sum[1] = sum[0].plus(ours), sum[1].plus(theirs)
		fmt.Fprintf(b, "\n| %s | %d, %d | %d of %d | %d | %d | %d | %d | %d | %d |", name, len(n.GPUs), len(n.NICs), len(n.Direct()), len(n.Pairs),
			ours.placed, ours.bad, ours.refused, theirs.placed, theirs.bad, theirs.refused)
	}
	fmt.Fprintf(b, "\n| all | | | %d | %d | %d | %d | %d | %d |", sum[0].placed, sum[0].bad, sum[0].refused, sum[1].placed, sum[1].bad, sum[1].refused)
	if sum[1].bad == 0 || sum[1].refused == 0 {
		t.Error("by pcieRoot alone nothing is lost: the machines show nothing")
	}
	b.check(t, "make dra-table")
}
