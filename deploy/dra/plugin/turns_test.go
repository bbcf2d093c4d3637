// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Pods that each want one GPU, and of which each GPU has one partner, come at once, again and again until all of them
// have it. In each round the scheduler gives them what is free, in the order of the turns.
func TestTurnsEnd(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(3, seed))
	for name, c := range map[string]struct {
		most  int // rounds
		order func(all []string)
	}{
		"the same order":  {2, func([]string) {}},
		"the other order": {100, func(all []string) { slices.Sort(all) }},
		"any order":       {100, func(all []string) { r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) }},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				var turns turns
				now := time.Now()
				waits := []string{"h", "g", "f", "e", "d", "c", "b", "a"} // and their partners are published as "a" to "h"
				free := slices.Sorted(slices.Values(waits))
				rounds := 0
				for ; len(waits) > 0; rounds++ {
					if rounds > c.most {
						t.Fatalf("seed %d: %v still wait after %d rounds", seed, waits, rounds)
					}
					order := slices.Clone(turns.gpus(now))
					for _, x := range free {
						if !slices.Contains(order, x) {
							order = append(order, x)
						}
					}
					order = slices.DeleteFunc(order, func(x string) bool { return !slices.Contains(free, x) })
					var again []string
					if rounds > 0 {
						c.order(waits)
					}
					for i, gpu := range waits {
						if order[i] == gpu {
							turns.accept([]string{gpu})
							free = slices.DeleteFunc(free, func(x string) bool { return x == gpu })
						} else {
							turns.refuse([]string{gpu}, now)
							again = append(again, gpu)
						}
					}
					waits = again
				}
			}
		})
	}
}

func TestTurns(t *testing.T) {
	var turns turns
	now := time.Now()
	turns.refuse([]string{"a", "b"}, now)
	turns.refuse([]string{"c"}, now.Add(turnEnds/2))
	if got := fmt.Sprint(turns.gpus(now.Add(turnEnds / 2))); got != "[a b c]" {
		t.Error(got)
	}
	if turns.accept([]string{"x"}) || !turns.accept([]string{"b"}) {
		t.Error("a GPU without a turn had one, or the other way round")
	}
	if got := fmt.Sprint(turns.gpus(now.Add(turnEnds))); got != "[c]" {
		t.Errorf("%s: the pod of a has not come again", got)
	}
	for i := range 2 * mostTurns {
		turns.refuse([]string{fmt.Sprint(i)}, now.Add(turnEnds))
	}
	if got := turns.gpus(now.Add(turnEnds)); len(got) != mostTurns || got[mostTurns-1] != fmt.Sprint(2*mostTurns-1) {
		t.Error(got)
	}
}
