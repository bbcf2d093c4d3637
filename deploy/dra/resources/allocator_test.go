// SPDX-License-Identifier: Apache-2.0

package resources_test

import (
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	api "k8s.io/api/resource/v1"

	"github.com/gpurdma/gpurdma/deploy/dra/clustertest"
	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// run is a cluster, and the pods that have devices there.
type run struct {
	*clustertest.Cluster
	n    *node.Node
	pods []pod
}

type pod struct {
	claim *api.ResourceClaim
	taken pairs.Taken
}

func (r *run) taken() (t pairs.Taken) {
	for _, p := range r.pods {
		t.Pairs, t.Sets = append(t.Pairs, p.taken.Pairs...), append(t.Sets, p.taken.Sets...)
	}
	return t
}

// publishAll publishes as the driver does after each change.
func (r *run) publishAll() pairs.Offer {
	o := pairs.Make(r.n.Direct(), r.taken(), 3)
	r.Publish(resources.Driver, resources.Pairs(r.n, o, nil, nil))
	return o
}

// place places a pod, and reports whether it has its devices.
func (r *run) place(t *testing.T, o pairs.Offer, requests ...api.DeviceRequest) bool {
	t.Helper()
	p := pod{claim: r.Allocate(t, nil, requests...)}
	got := clustertest.Names(p.claim)
	if len(got) == 0 {
		return false
	}
	for _, name := range got {
		if i := slices.IndexFunc(o.Pairs, func(x pairs.Pair) bool { return resources.Name(x) == name }); i >= 0 {
			p.taken.Pairs = append(p.taken.Pairs, o.Pairs[i])
		} else if i := slices.IndexFunc(o.Sets, func(x pairs.Set) bool { return resources.SetName(x) == name }); i >= 0 {
			p.taken.Sets = append(p.taken.Sets, o.Sets[i])
		} else {
			t.Fatalf("%s is given away, and not offered", name)
		}
	}
	r.pods = append(r.pods, p)
	return true
}

// check fails the test if a pair is not direct, or a device is given twice.
func (r *run) check(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	for _, p := range r.taken().All() {
		if x, ok := r.n.Pair(p.GPU, p.NIC); !ok || x.Outcome != chain.Direct {
			t.Errorf("%v is given away, and is %v", p, x.Outcome)
		}
		for _, d := range []string{"gpu " + p.GPU, "nic " + p.NIC} {
			if seen[d] {
				t.Errorf("%s is given away twice", d)
			}
			seen[d] = true
		}
	}
}

// most is how many pairs could be given away besides what pods have.
func (r *run) most() int {
	gpu, nic := map[string]bool{}, map[string]bool{}
	for _, p := range r.taken().All() {
		gpu[p.GPU], nic[p.NIC] = true, true
	}
	return mostOf(r.n, func(p pairs.Pair) bool { return !gpu[p.GPU] && !nic[p.NIC] })
}

// mostOf is how many of a node's direct pairs that are free could be given away at once, by trying everything.
func mostOf(n *node.Node, free func(pairs.Pair) bool) int {
	direct := slices.DeleteFunc(n.Direct(), func(p pairs.Pair) bool { return !free(p) })
	bit := map[string]uint{}
	for i, x := range n.NICs {
		bit[x.ID] = 1 << i
	}
	reached := map[uint]bool{0: true} // all sets of NICs that can be given away with some of the GPUs so far
	for _, g := range n.GPUs {
		for _, used := range slices.Collect(maps.Keys(reached)) {
			for _, p := range direct {
				if p.GPU == g.ID && used&bit[p.NIC] == 0 {
					reached[used|bit[p.NIC]] = true
				}
			}
		}
	}
	best := 0
	for used := range reached {
		best = max(best, bits.OnesCount(used))
	}
	return best
}

// Random pods come and go on the machines of the corpus. A request for pairs is met exactly if trying
// everything finds a way, and each pair is direct.
func TestAllocator(t *testing.T) {
	all := clustertest.Topologies(t)
	if len(all) < 20 {
		t.Errorf("%d machines, want 20", len(all))
	}
	for name, n := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(7, uint64(len(name))))
			r := &run{Cluster: clustertest.New(), n: n}
			placed, refused := 0, 0
			for range 200 {
				if len(r.pods) > 0 && random.IntN(3) == 0 {
					i := random.IntN(len(r.pods))
					r.Release(r.pods[i].claim)
					r.pods = slices.Delete(r.pods, i, i+1)
				}
				o := r.publishAll()
				size, want := 1, r.most()
				if random.IntN(3) == 0 {
					size = pairs.Sizes[random.IntN(len(pairs.Sizes))]
				}
				met := r.place(t, o, clustertest.Request("r", resources.Driver, 1, clustertest.OfSize(size)))
				if met != (want >= size) {
					t.Fatalf("%d pairs asked for, met %v; %d can be given away besides %v", size, met, want, r.taken())
				}
				if met {
					placed++
				} else {
					refused++
				}
				r.check(t)
			}
			t.Logf("%d placed, %d refused for good reason", placed, refused)
		})
	}
}
