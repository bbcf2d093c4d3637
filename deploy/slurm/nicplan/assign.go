// SPDX-License-Identifier: Apache-2.0

package nicplan

import (
	"slices"

	"github.com/gpurdma/gpurdma/p2p/matching"
)

// Assign gives each GPU NICs, by the pairs that are direct. First each GPU gets one NIC, each NIC one GPU, as many
// as possible and as near as possible. GPUs that are left share NICs, as evenly as the pairs allow. NICs that are
// left go to GPUs to which they are as near as the first one. Of sets that are equally good it prefers the
// pairs of before, an earlier plan's.
func Assign(pairs []matching.Pair, before map[string][]string) map[string][]string {
	given := map[string][]string{}
	used := map[string]bool{}
	first := map[string]int{} // cost of a GPU's first NIC
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
	without := func() []matching.Pair {
		return slices.DeleteFunc(slices.Clone(pairs), func(p matching.Pair) bool { return len(given[p.GPU]) > 0 })
	}
	unused := func() []matching.Pair {
		return slices.DeleteFunc(slices.Clone(pairs), func(p matching.Pair) bool { return used[p.NIC] || p.Cost > first[p.GPU] })
	}
	for round(without()) {
	}
	for round(unused()) {
	}
	return given
}
