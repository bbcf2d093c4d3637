// SPDX-License-Identifier: Apache-2.0

package matching_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/matching"
)

// most tries all sets of pairs without a device twice: it returns the size of the largest, and the
// lowest cost of that size.
func most(all []matching.Pair) (size, cost int) {
	if len(all) == 0 {
		return 0, 0
	}
	p := all[0]
	size, cost = most(all[1:])
	s, c := most(slices.DeleteFunc(slices.Clone(all[1:]), func(q matching.Pair) bool { return q.GPU == p.GPU || q.NIC == p.NIC }))
	if s+1 > size || s+1 == size && c+p.Cost < cost {
		return s + 1, c + p.Cost
	}
	return size, cost
}

// The matching of random pairs is as large as trying everything finds, and costs no more.
func TestBestIsBest(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		var all []matching.Pair
		density := 0.2 + 0.6*r.Float64()
		for g := range 1 + r.IntN(5) {
			for n := range 1 + r.IntN(5) {
				if r.Float64() < density {
					all = append(all, matching.Pair{GPU: fmt.Sprint("g", g), NIC: fmt.Sprint("n", n), Cost: r.IntN(4)})
				}
			}
		}
		best, sum := matching.Best(all), 0
		seen := map[string]bool{}
		for i := range best {
			p := all[i]
			if seen[p.GPU] || seen[p.NIC] {
				t.Fatalf("%v of %v: a device is in two pairs", best, all)
			}
			seen[p.GPU], seen[p.NIC] = true, true
			sum += p.Cost
		}
		if size, cost := most(all); len(best) != size || sum != cost {
			t.Fatalf("%v: %d pairs of cost %d, and %d of cost %d are possible", all, len(best), sum, size, cost)
		}
		if again := matching.Best(all); !maps.Equal(again, best) {
			t.Fatalf("%v: %v, and then %v", all, best, again)
		}
	}
}
