// SPDX-License-Identifier: Apache-2.0

package schedule

// Pair is two NICs of different nodes, by their numbers: those of the first node come first.
type Pair struct{ A, B int }

// exact is the number of NICs up to which unequal nodes get the fewest rounds, or one more. Beyond it the
// time that this takes is more than what the rounds save.
const exact = 512

// Rounds returns all pairs of NICs of different nodes, each once, in rounds in which no NIC is used twice.
// counts has the number of NICs of each node. With sameRail only NICs at the same place of their nodes are
// pairs.
//
// A NIC has a pair with each NIC of the other nodes, so there are at least as many rounds as the NIC with
// the most pairs has. Rounds makes that many, if the nodes have equally many NICs and if they are an
// even number or have one NIC each, an odd number of nodes with one NIC each needing one more;
// otherwise one more up to 512 NICs, and beyond that up to as many more as a node has NICs.
func Rounds(counts []int, sameRail bool) [][]Pair {
	first := make([]int, len(counts)+1)
	most, equal := 0, true
	for i, n := range counts {
		first[i+1] = first[i] + n
		most = max(most, n)
		equal = equal && n == counts[0]
	}
	switch nics := first[len(counts)]; {
	case sameRail:
		return rails(counts, first, most)
	case equal && (len(counts)%2 == 0 || most == 1):
		return squares(len(counts), most)
	case nics <= exact:
		return colour(nodeOf(counts), circle(nics))
	default:
		return between(nodeOf(counts), circle(nics))
	}
}

// circle is the round-robin tournament of n players: one stays, the others move on by one place in each
// round. It has n-1 rounds, or n if n is odd.
func circle(n int) (rounds [][]Pair) {
	if n < 2 {
		return nil
	}
	even := n + n%2
	for r := range even - 1 {
		var round []Pair
		at := func(i int) int {
			if i == 0 {
				return even - 1
			}
			return (r + i) % (even - 1)
		}
		for i := range even / 2 {
			a, b := at(i), at(even-1-i)
			if a > b {
				a, b = b, a
			}
			if b < n { // else a is idle in this round
				round = append(round, Pair{a, b})
			}
		}
		rounds = append(rounds, round)
	}
	return rounds
}

// squares are the rounds of nodes with equally many NICs: those of a tournament of the nodes, each as many
// times as a node has NICs. NICs at the same place come first.
func squares(nodes, nics int) (rounds [][]Pair) {
	tournament := circle(nodes)
	for shift := range nics {
		for _, games := range tournament {
			var round []Pair
			for _, g := range games {
				for i := range nics {
					round = append(round, Pair{g.A*nics + i, g.B*nics + (i+shift)%nics})
				}
			}
			rounds = append(rounds, round)
		}
	}
	return rounds
}

// rails are the rounds of pairs at the same place: a tournament for each place, all of them at once.
func rails(counts, first []int, most int) (rounds [][]Pair) {
	for rail := range most {
		var players []int
		for node, n := range counts {
			if rail < n {
				players = append(players, first[node]+rail)
			}
		}
		for r, games := range circle(len(players)) {
			if r == len(rounds) {
				rounds = append(rounds, nil)
			}
			for _, g := range games {
				rounds[r] = append(rounds[r], Pair{players[g.A], players[g.B]})
			}
		}
	}
	return rounds
}

// nodeOf returns the node of each NIC.
func nodeOf(counts []int) (nodes []int) {
	for node, n := range counts {
		for range n {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// between leaves out the pairs of one node's NICs.
func between(node []int, rounds [][]Pair) (kept [][]Pair) {
	for _, round := range rounds {
		var rest []Pair
		for _, p := range round {
			if node[p.A] != node[p.B] {
				rest = append(rest, p)
			}
		}
		if len(rest) > 0 {
			kept = append(kept, rest)
		}
	}
	return kept
}
