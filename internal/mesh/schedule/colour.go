// SPDX-License-Identifier: Apache-2.0

package schedule

// colouring gives each pair a round, by the algorithm of Misra and Gries: as many rounds as the NIC with the
// most pairs has, and at most one more.
type colouring struct {
	with [][]int // by NIC and round: the other NIC, or -1
}

// colour puts the pairs of different nodes into the fewest rounds, or one more.
func colour(node []int, rounds [][]Pair) (coloured [][]Pair) {
	pairs := between(node, rounds)
	degree, most := make([]int, len(node)), 0
	for _, round := range pairs {
		for _, p := range round {
			degree[p.A]++
			degree[p.B]++
			most = max(most, degree[p.A], degree[p.B])
		}
	}
	c := &colouring{with: make([][]int, len(node))}
	for i := range c.with {
		c.with[i] = make([]int, most+1)
		for r := range c.with[i] {
			c.with[i][r] = -1
		}
	}
	for _, round := range pairs {
		for _, p := range round {
			c.add(p.A, p.B)
		}
	}
	for r := range most + 1 {
		var round []Pair
		for a := range c.with {
			if b := c.with[a][r]; b > a {
				round = append(round, Pair{a, b})
			}
		}
		if len(round) > 0 {
			coloured = append(coloured, round)
		}
	}
	return coloured
}

// free returns a round in which a NIC has no pair.
func (c *colouring) free(nic int) int {
	for r, other := range c.with[nic] {
		if other < 0 {
			return r
		}
	}
	panic("a NIC has more pairs than there are rounds") // there is one round more than pairs
}

// both returns a round in which neither NIC has a pair, -1 if there is none.
func (c *colouring) both(a, b int) int {
	for r := range c.with[a] {
		if c.with[a][r] < 0 && c.with[b][r] < 0 {
			return r
		}
	}
	return -1
}

func (c *colouring) set(a, b, round int) { c.with[a][round], c.with[b][round] = b, a }

// add gives the pair of x and f a round, and moves others where there is none for it.
func (c *colouring) add(x, f int) {
	if r := c.both(x, f); r >= 0 {
		c.set(x, f, r)
		return
	}
	// A fan of x: NICs with which x has a pair, each in a round that the one before it has free.
	fan, rounds := []int{f}, []int{-1}
	in := map[int]bool{f: true}
	for {
		last, grown := fan[len(fan)-1], false
		for r, v := range c.with[x] {
			if v >= 0 && !in[v] && c.with[last][r] < 0 {
				fan, rounds, grown = append(fan, v), append(rounds, r), true
				in[v] = true
				break
			}
		}
		if !grown {
			break
		}
	}
	// The path from x whose pairs are in the rounds from and to in turn is swapped: then x has to free.
	from, to := c.free(x), c.free(fan[len(fan)-1])
	c.invert(x, to, from)
	for i := range rounds {
		if rounds[i] == to {
			rounds[i] = from
		}
	}
	// The part of the fan up to a NIC that has to free, and that is still a fan.
	w := 0
	for c.with[fan[w]][to] >= 0 {
		w++
		if w == len(fan) || c.with[x][rounds[w]] != fan[w] || c.with[fan[w-1]][rounds[w]] >= 0 {
			panic("the fan has no NIC with that round free") // Misra and Gries have shown that there is one
		}
	}
	for i := range w { // each NIC of the fan takes the round of the next one
		c.with[x][rounds[i+1]], c.with[fan[i+1]][rounds[i+1]] = -1, -1
		c.set(x, fan[i], rounds[i+1])
	}
	c.set(x, fan[w], to)
}

// invert swaps two rounds along the path that begins at a NIC with a pair of the first.
func (c *colouring) invert(nic, first, second int) {
	path := []int{nic}
	for r, other := first, second; ; r, other = other, r {
		next := c.with[path[len(path)-1]][r]
		if next < 0 {
			break
		}
		path = append(path, next)
	}
	for i, r := 0, first; i+1 < len(path); i++ {
		c.with[path[i]][r], c.with[path[i+1]][r] = -1, -1
		r = first + second - r
	}
	for i, r := 0, second; i+1 < len(path); i++ {
		c.set(path[i], path[i+1], r)
		r = first + second - r
	}
}
