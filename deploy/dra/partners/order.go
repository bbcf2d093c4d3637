// SPDX-License-Identifier: Apache-2.0

package partners

import (
	"cmp"
	"slices"

	api "k8s.io/api/resource/v1"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
)

// First returns the IDs of the NICs of a node in the order in which the scheduler is to try them. Partners of the first
// GPU of wait come first, then those of the second one: a claim with that GPU was refused. Then comes one partner of
// each GPU of order, which is that in which the scheduler tries the GPUs: the pods that come one after the other then
// get partners at once. The rest follows.
func First(n *node.Node, wait, order []string) (list []string) {
	add := func(id string) {
		if !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	for _, g := range wait {
		for _, x := range n.NICs {
			if direct(n, g, x.ID) {
				add(x.ID)
			}
		}
	}
	all := n.Direct()
	at := func(p pairs.Pair) int {
		if i := slices.Index(order, p.GPU); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(all, func(p, q pairs.Pair) int { return cmp.Compare(at(p), at(q)) })
	o := pairs.Make(all, pairs.Taken{}, 1)
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
