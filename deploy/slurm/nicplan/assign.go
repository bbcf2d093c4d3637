// SPDX-License-Identifier: Apache-2.0

package nicplan

import (
	"maps"
	"slices"

	"github.com/gpurdma/gpurdma/p2p/matching"
)

// Assign gives each GPU NICs, by the pairs that are direct. First each GPU gets one NIC, each NIC one GPU, as many
// as possible and as near as possible. GPUs that are left share NICs, as evenly as the pairs allow. NICs that are
// left go to GPUs to which they are as near as the first one. Of sets that are equally good it prefers the
// pairs of before, an earlier plan's.
//
// GPUs of jobs that run keep the NICs that held has for them. Such a NIC goes to another GPU only if there is no
// NIC for that one besides.
func Assign(pairs []matching.Pair, before, held map[string][]string) map[string][]string {
	given := map[string][]string{}
	used := map[string]bool{}
	taken := map[string]bool{} // by jobs that run
	first := map[string]int{}  // cost of a GPU's first NIC
	for gpu, nics := range held {
		for _, n := range nics {
			taken[n] = true
			if slices.ContainsFunc(pairs, func(p matching.Pair) bool { return p.GPU == gpu && p.NIC == n }) {
				given[gpu] = append(given[gpu], n)
			}
		}
	}
	kept := maps.Clone(given)
	round := func(some []matching.Pair) bool {
		priced := slices.Clone(some)
		for i, p := range priced {
			priced[i].Cost = p.Cost * (len(priced) + 1)
			if !slices.Contains(before[p.GPU], p.NIC) {
				priced[i].Cost++
			}
		}
		best := matching.Best(priced)
		for i, p := range some {
			if !best[i] {
				continue
			}
			if len(given[p.GPU]) == 0 {
				first[p.GPU] = p.Cost
			}
			given[p.GPU] = append(given[p.GPU], p.NIC)
			used[p.NIC] = true
		}
		return len(best) > 0
	}
	but := func(leave func(matching.Pair) bool) []matching.Pair {
		return slices.DeleteFunc(slices.Clone(pairs), leave)
	}
	has := func(p matching.Pair) bool { return len(given[p.GPU]) > 0 }
	round(but(func(p matching.Pair) bool { return has(p) || taken[p.NIC] }))
	for round(but(has)) {
	}
	for round(but(func(p matching.Pair) bool {
		return used[p.NIC] || taken[p.NIC] || len(kept[p.GPU]) > 0 || p.Cost > first[p.GPU]
	})) {
	}
	return given
}
