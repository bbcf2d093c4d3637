// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// check fails the test unless the rounds have each pair once, and no NIC twice in a round. It returns
// the fewest rounds that there could be.
func check(t *testing.T, counts []int, sameRail bool, rounds [][]Pair) (fewest int) {
	t.Helper()
	var node, place []int
	for i, n := range counts {
		for p := range n {
			node, place = append(node, i), append(place, p)
		}
	}
	want := func(a, b int) bool { return node[a] != node[b] && (!sameRail || place[a] == place[b]) }
	seen, degree := map[Pair]bool{}, make([]int, len(node))
	for r, round := range rounds {
		used := map[int]bool{}
		if len(round) == 0 {
			t.Errorf("%v: round %d is empty", counts, r)
		}
		for _, p := range round {
			if p.A >= p.B || p.B >= len(node) || !want(p.A, p.B) || seen[p] || used[p.A] || used[p.B] {
				t.Fatalf("%v, round %d: pair %v: seen %v, NICs used %v %v", counts, r, p, seen[p], used[p.A], used[p.B])
			}
			seen[p], used[p.A], used[p.B] = true, true, true
			degree[p.A]++
			degree[p.B]++
		}
	}
	pairs := 0
	for a := range node {
		for b := a + 1; b < len(node); b++ {
			if want(a, b) {
				pairs++
			}
		}
		fewest = max(fewest, degree[a])
	}
	if len(seen) != pairs {
		t.Fatalf("%v: %d pairs, want %d", counts, len(seen), pairs)
	}
	if half := len(node) / 2; half > 0 {
		fewest = max(fewest, (pairs+half-1)/half)
	}
	return fewest
}

func TestRounds(t *testing.T) {
	for _, c := range []struct {
		nodes, nics int
		more        int // rounds than the fewest that there could be
	}{{0, 1, 0}, {1, 1, 0}, {1, 8, 0}, {2, 1, 0}, {2, 8, 0}, {3, 1, 0}, {3, 8, 1}, {4, 1, 0}, {5, 2, 1}, {7, 1, 0}, {8, 8, 0}, {9, 8, 1}, {33, 4, 1}, {200, 1, 0}, {201, 1, 0}, {101, 8, 8}} {
		var counts []int
		for range c.nodes {
			counts = append(counts, c.nics)
		}
		rounds := Rounds(counts, false)
		if fewest := check(t, counts, false, rounds); len(rounds) > fewest+c.more {
			t.Errorf("%d nodes of %d: %d rounds, of %d at least", c.nodes, c.nics, len(rounds), fewest)
		}
	}
}

// Nodes with unequally many NICs, some with none.
func TestRoundsRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		var counts []int
		for range rnd.IntN(12) {
			counts = append(counts, rnd.IntN(9))
		}
		rounds := Rounds(counts, false)
		if fewest := check(t, counts, false, rounds); len(rounds) > fewest+1 {
			t.Errorf("%v: %d rounds, of %d at least", counts, len(rounds), fewest)
		}
		rounds = Rounds(counts, true)
		if fewest := check(t, counts, true, rounds); len(rounds) > fewest+1 {
			t.Errorf("%v, same rails: %d rounds, of %d at least", counts, len(rounds), fewest)
		}
	}
}

// Beyond the bound of the exact way there are at most as many rounds more as a node has NICs.
func TestRoundsMany(t *testing.T) {
	counts := []int{7}
	for range 75 {
		counts = append(counts, 8)
	}
	rounds := Rounds(counts, false)
	if fewest := check(t, counts, false, rounds); len(rounds) > fewest+8 {
		t.Errorf("%d rounds, of %d at least", len(rounds), fewest)
	}
}

// The queue begins each pair once, never with a NIC that is busy, and never leaves two free NICs idle
// that have a pair.
func TestQueue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for n := range 100 {
		var counts []int
		nics := 0
		for range 2 + rnd.IntN(8) {
			counts = append(counts, 1+rnd.IntN(4))
			nics += counts[len(counts)-1]
		}
		most := rnd.IntN(4) * rnd.IntN(3)
		t.Run(fmt.Sprint(n), func(t *testing.T) { drive(t, rnd, counts, nics, most) })
	}
}

func drive(t *testing.T, rnd *rand.Rand, counts []int, nics, most int) {
	rounds := Rounds(counts, false)
	left := map[Pair]bool{}
	for _, r := range rounds {
		for _, p := range r {
			left[p] = true
		}
	}
	q := NewQueue(nics, rounds, most)
	busy := map[int]bool{}
	var running []Pair
	begin := func(list []Pair) {
		for _, p := range list {
			if !left[p] || busy[p.A] || busy[p.B] {
				t.Fatalf("%v: left %v, busy %v %v", p, left[p], busy[p.A], busy[p.B])
			}
			delete(left, p)
			busy[p.A], busy[p.B] = true, true
			running = append(running, p)
		}
		if most > 0 && len(running) > most {
			t.Fatalf("%d at once, of %d", len(running), most)
		}
		if q.left != len(left) {
			t.Fatalf("%d left, want %d", q.left, len(left))
		}
		for p := range left {
			if !busy[p.A] && !busy[p.B] && (most == 0 || len(running) < most) {
				t.Fatalf("%v could begin", p)
			}
		}
	}
	begin(q.Start())
	for len(running) > 0 {
		i := rnd.IntN(len(running))
		p := running[i]
		running = append(running[:i], running[i+1:]...)
		busy[p.A], busy[p.B] = false, false
		if rnd.IntN(20) == 0 {
			nic := rnd.IntN(nics)
			for _, d := range q.Drop(nic) {
				if !left[d] || d.A != nic && d.B != nic {
					t.Fatalf("dropped %v of %d", d, nic)
				}
				delete(left, d)
			}
			for p := range left {
				if p.A == nic || p.B == nic {
					t.Fatalf("%v was not dropped", p)
				}
			}
		}
		begin(q.Done(p))
	}
	if len(left) > 0 {
		t.Errorf("%d never began", len(left))
	}
}
