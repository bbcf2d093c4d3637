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
		given := Assign(all, nil, nil)
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
		if again := Assign(all, given, nil); single && !same(again, given) {
			t.Fatalf("%v: %v, and then %v", all, given, again)
		}
	}
}

// A GPU that a job has keeps its NICs, whatever pairs come and go. Another GPU gets one of them only where not all of the
// others could have one besides.
func TestAssignHeld(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	shared := 0
	for range 2000 {
		pairs := func() (all []matching.Pair) {
			for g := range 5 {
				for n := range 5 {
					if r.Float64() < 0.5 {
						all = append(all, matching.Pair{GPU: fmt.Sprint("g", g), NIC: fmt.Sprint("n", n), Cost: r.IntN(3)})
					}
				}
			}
			return all
		}
		before := Assign(pairs(), nil, nil)
		held, taken := map[string][]string{}, map[string]bool{}
		for g := range 5 {
			if name := fmt.Sprint("g", g); r.IntN(2) == 0 && len(before[name]) > 0 {
				held[name] = before[name]
				for _, n := range before[name] {
					taken[n] = true
				}
			}
		}
		all := pairs()
		is := func(g, n string) bool {
			return slices.ContainsFunc(all, func(p matching.Pair) bool { return p.GPU == g && p.NIC == n })
		}
		given := Assign(all, before, held)
		kept := map[string]bool{}
		for g, nics := range held {
			var want []string
			for _, n := range nics {
				if is(g, n) {
					want = append(want, n)
				}
			}
			if kept[g] = len(want) > 0; kept[g] && !same(map[string][]string{g: given[g]}, map[string][]string{g: want}) {
				t.Fatalf("%v: %s had %v, and has %v", all, g, nics, given[g])
			}
		}
		var free []matching.Pair
		others := map[string]bool{}
		for _, p := range all {
			if !kept[p.GPU] {
				others[p.GPU] = true
				if !taken[p.NIC] {
					free = append(free, p)
				}
			}
		}
		for g := range others {
			if len(given[g]) == 0 {
				t.Fatalf("%v: %s has none", all, g)
			}
			for _, n := range given[g] {
				if !taken[n] {
					continue
				}
				shared++
				if len(matching.Best(free)) == len(others) {
					t.Fatalf("%v: %s has %s, which a job has: %v", all, g, n, held)
				}
			}
		}
	}
	if shared == 0 {
		t.Error("no NIC had to be shared")
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
	given := Assign(all, nil, nil)
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
	for _, nics := range Assign(all, nil, nil) {
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
