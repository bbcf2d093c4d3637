// SPDX-License-Identifier: Apache-2.0

package pairs

import "github.com/gpurdma/gpurdma/p2p/matching"

// match returns the indices of a matching's pairs: as many as possible, at the lowest sum of costs.
func match(all []Pair) map[int]bool {
	list := make([]matching.Pair, len(all))
	for i, p := range all {
		list[i] = matching.Pair(p)
	}
	return matching.Best(list)
}
