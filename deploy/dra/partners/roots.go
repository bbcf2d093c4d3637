// SPDX-License-Identifier: Apache-2.0

package partners

import (
	"slices"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
)

// elsewhere is the cost of a host bridge that is not the NIC's own. It is higher than that of any pair.
const elsewhere = 1000

// Roots returns, by a NIC's ID, the host bridge that may stand in its attribute pcieRoot. A claim by that attribute gets
// any GPU of that host bridge with the NIC, so the NIC has to reach all of them directly: a NIC that does
// not is left out. With others, a NIC for which its own host bridge is of no use has that of GPUs that it reaches:
// as many GPUs as possible have a NIC of their own, the nearest ones.
func Roots(n *node.Node, others bool) map[string]string {
	out := map[string]string{}
	var list []pairs.Pair
	for _, p := range n.Direct() {
		g, x := n.GPU(p.GPU), n.NIC(p.NIC)
		if g.Root == nil || !all(n, p.NIC, *g.Root) {
			continue
		}
		if x.Root == nil || *x.Root != *g.Root {
			if !others {
				continue
			}
			p.Cost += elsewhere
		}
		list = append(list, p)
	}
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
