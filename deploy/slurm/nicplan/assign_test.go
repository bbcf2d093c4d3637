// SPDX-License-Identifier: Apache-2.0

package nicplan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/p2p/matching"
)

// For random pairs: each GPU that has a pair has a NIC; a NIC has two GPUs only if not all could have one of their own;
// no NIC has two GPUs more than the fairest round; NICs that are left go where they are as near.
func TestAssign(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 2000 {
		var all []matching.Pair
		density := 0.2 + 0.8*r.Float64()
		gpus := map[string]bool{}
		for g := range 1 + r.IntN(6) {
			for n := range 1 + r.IntN(6) {
				if r.Float64() < density {
					all = append(all, matching.Pair{GPU: fmt.Sprint("g", g), NIC: fmt.Sprint("n", n), Cost: r.IntN(3)})
					gpus[fmt.Sprint("g", g)] = true
				}
			}
		}
		given := Assign(all, nil)
		takers := map[string][]string{}
		for g, nics := range given {
			for _, n := range nics {
				if !slices.ContainsFunc(all, func(p matching.Pair) bool { return p.GPU == g && p.NIC == n }) {
					t.Fatalf("%v: %s has %s", all, g, n)
				}
				takers[n] = append(takers[n], g)
			}
		}
		if len(given) != len(gpus) {
			t.Fatalf("%v: %v", all, given)
		}
		single := len(matching.Best(all)) == len(gpus)
		for n, list := range takers {
			if len(list) > 1 && single {
				t.Fatalf("%v: %s has %v, and all could have one of their own", all, n, list)
			}
			for _, g := range list {
				if len(list) > 1 && len(given[g]) > 1 {
					t.Fatalf("%v: %s has more than one NIC and shares %s: %v", all, g, n, given)
				}
			}
		}
		// An earlier plan that is as good is kept.
		if again := Assign(all, given); single && !same(again, given) {
			t.Fatalf("%v: %v, and then %v", all, given, again)
		}
	}
}

func same(a, b map[string][]string) bool {
	for g := range a {
		x, y := slices.Sorted(slices.Values(a[g])), slices.Sorted(slices.Values(b[g]))
		if !slices.Equal(x, y) {
			return false
		}
	}
	return len(a) == len(b)
}

// Eight GPUs and sixteen NICs, two of them next to each GPU, and one that is far from all: each GPU has its two.
func TestAssignTwoEach(t *testing.T) {
	var all []matching.Pair
	for g := range 8 {
		for n := range 17 {
			cost := 8
			if n/2 == g {
				cost = 2
			}
			all = append(all, matching.Pair{GPU: fmt.Sprint("g", g), NIC: fmt.Sprintf("n%02d", n), Cost: cost})
		}
	}
	given := Assign(all, nil)
	for g := range 8 {
		got := slices.Sorted(slices.Values(given[fmt.Sprint("g", g)]))
		if want := []string{fmt.Sprintf("n%02d", 2*g), fmt.Sprintf("n%02d", 2*g+1)}; !slices.Equal(got, want) {
			t.Errorf("g%d has %v", g, got)
		}
	}
}

// Eight GPUs and four NICs that all reach: each NIC has two.
func TestAssignShared(t *testing.T) {
	var all []matching.Pair
	for g := range 8 {
		for n := range 4 {
			all = append(all, matching.Pair{GPU: fmt.Sprint("g", g), NIC: fmt.Sprint("n", n)})
		}
	}
	count := map[string]int{}
	for _, nics := range Assign(all, nil) {
		for _, n := range nics {
			count[n]++
		}
	}
	for n, c := range count {
		if c != 2 || len(count) != 4 {
			t.Errorf("%s has %d GPUs: %v", n, c, count)
		}
	}
}
