// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"cmp"
	"slices"
)

// Pair is a GPU and a NIC of a node. A name stands for the same device as long as the node runs.
type Pair struct {
	GPU  string `json:"gpu"`
	NIC  string `json:"nic"`
	Cost int    `json:"-"` // of two offers with as many pairs at once, that with the lower sum is made
}

// Same reports whether two pairs have the same devices.
func (p Pair) Same(q Pair) bool { return p.GPU == q.GPU && p.NIC == q.NIC }

// Shares reports whether two pairs have the same GPU, or the same NIC. One of the two names may be empty, as of a NIC alone.
func (p Pair) Shares(q Pair) bool {
	return p.GPU != "" && p.GPU == q.GPU || p.NIC != "" && p.NIC == q.NIC
}

// Compare orders pairs by their names.
func (p Pair) Compare(q Pair) int {
	return cmp.Or(cmp.Compare(p.GPU, q.GPU), cmp.Compare(p.NIC, q.NIC))
}

// Set is several pairs that are given away together. No GPU and no NIC is in two of them.
type Set []Pair

// Sizes are the numbers of pairs in a set.
var Sizes = []int{2, 4, 8, 16}

// Offer is what a node offers, in the order of preference.
type Offer struct {
	Pairs   []Pair
	Matched int   // the first pairs, which can all be given away at once
	Sets    []Set // by size; of one size none has a pair of another, unless one of the two is taken
}

// Taken is what a node has given away. It is part of every offer until it is given back.
type Taken struct {
	Pairs []Pair
	Sets  []Set
}

// All returns all pairs that are given away.
func (t Taken) All() []Pair { return slices.Concat(append([]Set{t.Pairs}, t.Sets...)...) }

// Make makes an offer of pairs. Those that are near each other follow one another in all: sets are made
// of neighbours. Of each GPU there are at most partners pairs, besides what is taken.
func Make(all []Pair, taken Taken, partners int) Offer {
	given := taken.All()
	gpu, nic := map[string]bool{}, map[string]bool{}
	for _, p := range given {
		gpu[p.GPU], nic[p.NIC] = true, true
	}
	free := slices.DeleteFunc(slices.Clone(all), func(p Pair) bool { return gpu[p.GPU] || nic[p.NIC] })
	chosen := match(free)
	var matched []Pair
	for i, p := range free {
		if chosen[i] {
			matched = append(matched, p)
		}
	}
	o := Offer{Sets: slices.Clone(taken.Sets)}
	o.Pairs = inOrder(all, slices.Concat(given, matched))
	o.Matched = len(o.Pairs)
	for _, size := range Sizes {
		o.Sets = append(o.Sets, sets(o.Pairs, matched, size)...)
	}
	o.Pairs = append(o.Pairs, further(all, o.Pairs, partners)...)
	return o
}

// inOrder sorts pairs as their GPUs are in all. Those of GPUs that are not there come last.
func inOrder(all, some []Pair) []Pair {
	at := map[string]int{}
	for i, p := range all {
		if _, known := at[p.GPU]; !known {
			at[p.GPU] = i
		}
	}
	slices.SortStableFunc(some, func(p, q Pair) int {
		x, known := at[p.GPU]
		y, other := at[q.GPU]
		if !known || !other {
			return cmp.Compare(btoi(other), btoi(known))
		}
		return cmp.Compare(x, y)
	})
	return some
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sets returns sets of free pairs, as many of a size as can be given away at once. Where nothing is
// taken, a set lies in one of the next size: small requests that come first leave large sets whole.
func sets(matched, free []Pair, size int) (list []Set) {
	isFree := func(p Pair) bool { return slices.ContainsFunc(free, p.Same) }
	var rest []Pair
	for s := range slices.Chunk(matched, size) {
		if len(s) == size && !slices.ContainsFunc(s, func(p Pair) bool { return !isFree(p) }) {
			list = append(list, slices.Clone(s))
			continue
		}
		for _, p := range s {
			if isFree(p) {
				rest = append(rest, p)
			}
		}
	}
	for s := range slices.Chunk(rest, size) {
		if len(s) == size {
			list = append(list, slices.Clone(s))
		}
	}
	return list
}

// further returns the pairs that follow those that are offered first: the best ones of each GPU.
func further(all, first []Pair, partners int) []Pair {
	count := map[string]int{}
	for _, p := range first {
		count[p.GPU]++
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(p Pair) bool { return slices.ContainsFunc(first, p.Same) })
	slices.SortStableFunc(rest, func(p, q Pair) int { return cmp.Compare(p.Cost, q.Cost) })
	return slices.DeleteFunc(rest, func(p Pair) bool {
		count[p.GPU]++
		return count[p.GPU] > partners
	})
}
