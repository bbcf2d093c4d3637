// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// graph returns random pairs of some GPUs and NICs.
func graph(r *rand.Rand, gpus, nics int, density float64) (all []Pair) {
	for g := range gpus {
		for n := range nics {
			if r.Float64() < density {
				all = append(all, Pair{fmt.Sprint("g", g), fmt.Sprint("n", n), r.IntN(4)})
			}
		}
	}
	return all
}

// most tries all sets of pairs without a device twice: it returns the size of the largest, and the
// lowest cost of that size.
func most(all []Pair) (size, cost int) {
	if len(all) == 0 {
		return 0, 0
	}
	p := all[0]
	size, cost = most(all[1:])
	s, c := most(slices.DeleteFunc(slices.Clone(all[1:]), func(q Pair) bool { return q.GPU == p.GPU || q.NIC == p.NIC }))
	if s+1 > size || s+1 == size && c+p.Cost < cost {
		return s + 1, c + p.Cost
	}
	return size, cost
}

// apart fails the test if a device is in two pairs.
func apart(t *testing.T, list []Pair) {
	t.Helper()
	seen := map[string]bool{}
	for _, p := range list {
		if seen[p.GPU] || seen[p.NIC] {
			t.Fatalf("%v: a device is in two pairs", list)
		}
		seen[p.GPU], seen[p.NIC] = true, true
	}
}

// The first pairs of an offer are as many as can be given away at once, at the lowest cost.
func TestMatchedIsMost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		all := graph(r, 1+r.IntN(5), 1+r.IntN(5), 0.2+0.6*r.Float64())
		o := Make(all, Taken{}, 3)
		first, sum := o.Pairs[:o.Matched], 0
		apart(t, first)
		for _, p := range first {
			sum += p.Cost
			if !slices.Contains(all, p) {
				t.Fatalf("%v is offered, and is none of %v", p, all)
			}
		}
		if size, cost := most(all); len(first) != size || sum != cost {
			t.Fatalf("%v: %d pairs of cost %d, and %d of cost %d are possible", all, len(first), sum, size, cost)
		}
	}
}

// Pods take the first free pair, and give pairs back in any order. The pairs that are left are as many as
// trying everything finds.
func TestOffersAfterTaking(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		all := graph(r, 5, 5, 0.3)
		var taken Taken
		for range 30 {
			o := Make(all, taken, 3)
			free := slices.DeleteFunc(slices.Clone(all), func(p Pair) bool {
				return slices.ContainsFunc(taken.All(), func(q Pair) bool { return p.GPU == q.GPU || p.NIC == q.NIC })
			})
			if size, _ := most(free); o.Matched != size+len(taken.All()) {
				t.Fatalf("%v, taken %v: %d matched, %d are possible", all, taken, o.Matched, size+len(taken.All()))
			}
			for _, p := range taken.All() {
				if !slices.Contains(o.Pairs, p) {
					t.Fatalf("%v is taken, and not offered: its counters would be free", p)
				}
			}
			offersSets(t, o, taken)
			if i := slices.IndexFunc(o.Pairs[:o.Matched], func(p Pair) bool { return !slices.ContainsFunc(taken.All(), p.Same) }); i >= 0 && r.IntN(5) > 1 {
				taken.Pairs = append(taken.Pairs, o.Pairs[i])
			} else if s := slices.IndexFunc(o.Sets, func(s Set) bool {
				return !slices.ContainsFunc(s, func(p Pair) bool { return slices.ContainsFunc(taken.All(), p.Same) })
			}); s >= 0 && r.IntN(3) == 0 {
				taken.Sets = append(taken.Sets, o.Sets[s])
			} else if n := len(taken.Pairs); n > 0 {
				i := r.IntN(n)
				taken.Pairs = slices.Delete(taken.Pairs, i, i+1)
			} else if n := len(taken.Sets); n > 0 {
				i := r.IntN(n)
				taken.Sets = slices.Delete(taken.Sets, i, i+1)
			}
		}
	}
}

// offersSets checks the sets of an offer. Those that are taken are there. Of each size there are as many
// others as the free pairs are enough for.
func offersSets(t *testing.T, o Offer, taken Taken) {
	t.Helper()
	left := slices.Clone(o.Sets)
	for _, s := range taken.Sets {
		i := slices.IndexFunc(left, func(x Set) bool { return slices.Equal(x, s) })
		if i < 0 {
			t.Fatalf("%v is taken, and not offered", s)
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, size := range Sizes {
		var pairs []Pair
		for _, s := range left {
			if len(s) == size {
				pairs = append(pairs, s...)
			}
		}
		apart(t, slices.Concat(pairs, taken.All()))
		if want := (o.Matched - len(taken.All())) / size * size; len(pairs) != want {
			t.Fatalf("%v, taken %v: sets of %d have %d pairs, want %d", o, taken, size, len(pairs), want)
		}
	}
}

// Where nothing is taken, each set lies in one of the next size, if that has one.
func TestSetsNest(t *testing.T) {
	var all []Pair
	for i := range 16 {
		for j := range 16 {
			all = append(all, Pair{fmt.Sprint("g", i), fmt.Sprint("n", j), btoi(i/4 != j/4)})
		}
	}
	o := Make(all, Taken{}, 3)
	count := map[int]int{}
	for _, s := range o.Sets {
		count[len(s)]++
		for _, p := range s {
			if p.Cost > 0 && len(s) <= 4 {
				t.Errorf("%v are not neighbours", s)
			}
		}
		if len(s) < 16 && !slices.ContainsFunc(o.Sets, func(x Set) bool {
			return len(x) == 2*len(s) && !slices.ContainsFunc(s, func(p Pair) bool { return !slices.Contains(x, p) })
		}) {
			t.Errorf("%v is in no set of the next size", s)
		}
	}
	if count[2] != 8 || count[4] != 4 || count[8] != 2 || count[16] != 1 {
		t.Errorf("sets by size: %v", count)
	}
	if o.Matched != 16 || len(o.Pairs) != 16*3 {
		t.Errorf("%d pairs, %d matched; want 3 of each GPU", len(o.Pairs), o.Matched)
	}
}
