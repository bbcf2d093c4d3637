// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"testing"

	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/deploy/dra/resources"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// most is how many direct pairs of a node can be given to pods at once, besides those that are taken. It tries
// everything, and has nothing in common with how the driver chooses.
func most(n *node.Node, taken []pairs.Pair) int {
	busy := map[string]bool{}
	for _, p := range taken {
		busy[p.GPU], busy[p.NIC] = true, true
	}
	reaches := make([]uint64, len(n.GPUs)) // the NICs of each GPU, a bit each
	for i, g := range n.GPUs {
		for j, x := range n.NICs {
			if p, ok := n.Pair(g.ID, x.ID); ok && p.Outcome == chain.Direct && !busy[g.ID] && !busy[x.ID] {
				reaches[i] |= 1 << j
			}
		}
	}
	type state struct {
		gpu  int
		used uint64
	}
	seen := map[state]int{}
	var best func(s state) int
	best = func(s state) int {
		if s.gpu == len(reaches) {
			return 0
		}
		if v, ok := seen[s]; ok {
			return v
		}
		v := best(state{s.gpu + 1, s.used})
		for j := range n.NICs {
			if bit := uint64(1) << j; reaches[s.gpu]&bit != 0 && s.used&bit == 0 {
				v = max(v, 1+best(state{s.gpu + 1, s.used | bit}))
			}
		}
		seen[s] = v
		return v
	}
	return best(state{})
}

// given returns all pairs that claims have on a machine, as the API server has them. It fails the test if one is not
// direct, or if a GPU or a NIC is given twice. Pairs of broken were direct when they were given.
func given(t *testing.T, m *machine, broken ...pairs.Pair) (list []pairs.Pair) {
	t.Helper()
	all, err := admin.ResourceV1().ResourceClaims("").List(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owner := map[string]string{}
	for _, c := range all.Items {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver != resources.Driver || r.Pool != m.name {
				continue
			}
			for _, p := range m.known(t, r.Device) {
				check(t, m, p, c, owner, broken)
				list = append(list, p)
			}
		}
	}
	return list
}

func check(t *testing.T, m *machine, p pairs.Pair, c api.ResourceClaim, owner map[string]string, broken []pairs.Pair) {
	t.Helper()
	n, _ := m.look(t.Context())
	x, _ := n.Pair(p.GPU, p.NIC)
	was := false
	for _, b := range broken {
		was = was || b.Same(p)
	}
	if x.Outcome != chain.Direct && !was {
		t.Errorf("%s: claim %s has %v, which is %v", m.name, c.Name, p, x.Outcome)
	}
	for _, d := range []string{"gpu " + p.GPU, "nic " + p.NIC} {
		if owner[d] != "" {
			t.Errorf("%s: %s is given to %s and to %s", m.name, d, owner[d], c.Name)
		}
		owner[d] = c.Name
	}
}
