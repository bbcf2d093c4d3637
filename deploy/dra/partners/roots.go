// SPDX-License-Identifier: Apache-2.0

package partners

import (
	"slices"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
)

// Roots returns, by a NIC's ID, the host bridge that may stand in its attribute pcieRoot. A claim by that attribute gets
// any GPU of that host bridge with the NIC, so the NIC has to reach all of them directly: a NIC that does
// not is left out. With others, it has the host bridge of GPUs that it reaches instead: as many GPUs as possible
// have a NIC then, the nearest ones.
func Roots(n *node.Node, others bool) map[string]string {
	own, out := map[string]bool{}, map[string]string{}
	var list []pairs.Pair
	for _, p := range n.Direct() {
		if g, x := n.GPU(p.GPU), n.NIC(p.NIC); g.Root != nil && all(n, p.NIC, *g.Root) {
			list = append(list, p)
			own[p.NIC] = own[p.NIC] || x.Root != nil && *x.Root == *g.Root
		}
	}
	list = slices.DeleteFunc(list, func(p pairs.Pair) bool {
		g, x := n.GPU(p.GPU), n.NIC(p.NIC)
		if own[p.NIC] {
			return *g.Root != *x.Root
		}
		return !others
	})
	o := pairs.Make(list, pairs.Taken{}, 1)
	slices.SortStableFunc(list, func(p, q pairs.Pair) int { return p.Cost - q.Cost })
	for _, p := range slices.Concat(o.Pairs[:o.Matched], list) { // those of no matching have the nearest
		if _, has := out[p.NIC]; !has {
			out[p.NIC] = *n.GPU(p.GPU).Root
		}
	}
	return out
}

// all reports whether a NIC reaches all GPUs that have a host bridge, or may have it, directly.
func all(n *node.Node, nic, root string) bool {
	for _, g := range n.GPUs {
		if g.Root != nil && *g.Root != root {
			continue
		}
		if !direct(n, g.ID, nic) {
			return false
		}
	}
	return true
}
