// SPDX-License-Identifier: Apache-2.0

package partners

import (
	"cmp"
	"slices"

	api "k8s.io/api/resource/v1"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
)

// First returns the IDs of the NICs of a node in the order in which the scheduler is to try them. The GPUs of wait are those
// whose claims were refused, and order has all GPUs in the order in which the scheduler tries them. One free partner of each
// GPU comes first, for those of wait before the others: claims that come one after the other, and a claim for
// several GPUs, then get partners. Further partners of the GPUs of wait follow, and then the rest. taken is what pods have.
func First(n *node.Node, wait, order []string, taken []pairs.Pair) (list []string) {
	add := func(id string) {
		if !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	turn := slices.Concat(wait, order)
	at := func(p pairs.Pair) int {
		if i := slices.Index(turn, p.GPU); i >= 0 {
			return i
		}
		return len(turn)
	}
	all := slices.DeleteFunc(n.Direct(), func(p pairs.Pair) bool {
		return slices.ContainsFunc(taken, func(q pairs.Pair) bool { // a part of a GPU may be free, if a claim waits for it
			return p.NIC == q.NIC || p.GPU == q.GPU && !slices.Contains(wait, p.GPU)
		})
	})
	slices.SortStableFunc(all, func(p, q pairs.Pair) int { return cmp.Compare(at(p), at(q)) })
	o := pairs.Make(all, pairs.Taken{}, 1)
	for _, p := range o.Pairs[:o.Matched] {
		if slices.Contains(wait, p.GPU) {
			add(p.NIC)
		}
	}
	for _, g := range wait {
		for _, x := range n.NICs {
			if direct(n, g, x.ID) {
				add(x.ID)
			}
		}
	}
	for _, p := range o.Pairs[:o.Matched] {
		add(p.NIC)
	}
	for _, x := range n.NICs {
		add(x.ID)
	}
	return list
}

// Order returns the IDs of the GPUs that other drivers publish for a node, in the order in which the scheduler tries
// them: pools by driver and name, their slices by name, and devices as they are listed.
func Order(n *node.Node, ours string, published []api.ResourceSlice) (ids []string) {
	list := slices.DeleteFunc(newest(published), func(s api.ResourceSlice) bool { return s.Spec.Driver == ours })
	slices.SortStableFunc(list, func(s, t api.ResourceSlice) int {
		return cmp.Or(cmp.Compare(s.Spec.Driver, t.Spec.Driver), cmp.Compare(s.Spec.Pool.Name, t.Spec.Pool.Name), cmp.Compare(s.Name, t.Name))
	})
	for _, s := range list {
		for _, d := range s.Spec.Devices {
			a, found := addressOf(d)
			i := slices.IndexFunc(n.GPUs, func(g node.GPU) bool { return found && g.PCI == a })
			if i >= 0 && !slices.Contains(ids, n.GPUs[i].ID) {
				ids = append(ids, n.GPUs[i].ID)
			}
		}
	}
	return ids
}
