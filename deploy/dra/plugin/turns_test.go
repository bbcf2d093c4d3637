// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// pending is a pod that wants one GPU, whose only partner has the GPU's name.
type pending struct {
	gpu   string
	nic   string // that it holds; "" if it holds none
	agree bool
}

// scheduler is what it does with the NICs of one node and pods that wait.
type scheduler struct {
	turns  turns
	closes int // how often the NICs were closed
	now    time.Time
	nics   []string
	pods   []*pending
}

// published are the NICs in the order in which the driver publishes them.
func (s *scheduler) published() []string {
	list := slices.Clone(s.turns.gpus(s.now))
	for _, x := range s.nics {
		if !slices.Contains(list, x) {
			list = append(list, x)
		}
	}
	return list
}

// tries gives pods the first NICs that are free, in turn.
func (s *scheduler) tries(pods []*pending) {
	if s.turns.closed(s.now) {
		return
	}
	for _, p := range pods {
		if i := slices.IndexFunc(s.published(), func(x string) bool {
			return !slices.ContainsFunc(s.pods, func(q *pending) bool { return q.nic == x })
		}); i >= 0 && p.nic == "" {
			p.nic = s.published()[i]
		}
	}
}

// answers answers all pods that hold a NIC, and takes back what was refused.
func (s *scheduler) answers(pods []*pending) {
	order := s.published()
	for _, p := range pods {
		switch {
		case p.nic == "" || p.agree:
		case p.nic == p.gpu:
			p.agree = true
			s.turns.accept([]string{p.gpu})
		default:
			if s.turns.refuse([]string{p.gpu}, slices.Index(order, p.nic), s.now) {
				s.closes++
			}
		}
	}
	for _, p := range pods {
		if !p.agree {
			p.nic = ""
		}
	}
}

func (s *scheduler) waits() bool {
	return slices.ContainsFunc(s.pods, func(p *pending) bool { return !p.agree })
}

func newScheduler() *scheduler {
	s := &scheduler{now: time.Now(), nics: strings.Fields("a b c d e f g h")}
	for _, g := range strings.Fields("h g f e d c b a") {
		s.pods = append(s.pods, &pending{gpu: g})
	}
	return s
}

// Pods that each want another GPU come at once, until all of them have a partner, in whichever order the scheduler tries them.
func TestTurnsEnd(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(3, seed))
	for name, c := range map[string]struct {
		most  int // rounds
		order func([]*pending)
	}{
		"the same order": {2, func([]*pending) {}},
		"another one after the first": {3, func(all []*pending) {
			slices.SortFunc(all, func(p, q *pending) int { return strings.Compare(p.gpu, q.gpu) })
		}},
		"any order": {200, func(all []*pending) { r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) }},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				s := newScheduler()
				rounds := 0
				for ; s.waits(); rounds++ {
					if rounds >= c.most {
						t.Fatalf("seed %d: pods still wait after %d rounds", seed, rounds)
					}
					if rounds > 0 {
						c.order(s.pods)
					}
					s.tries(s.pods)
					s.answers(s.pods)
					s.now = s.now.Add(7 * time.Second)
				}
			}
		})
	}
}

// Two groups of pods hold each other's partners: each takes NICs again just before the other one gives its own back. It was seen
// with Kubernetes' scheduler, for minutes. When the NICs are open again, the scheduler tries all pods that it could not place.
func TestTurnsGroups(t *testing.T) {
	for _, first := range []int{0, 1} { // which group is tried first then
		s := newScheduler()
		groups := [][]*pending{s.pods[:4], s.pods[4:]}
		apart, rounds := true, 0
		s.tries(s.pods)
		for ; s.waits() && rounds < 20; rounds++ {
			for _, g := range groups {
				was := s.turns.closed(s.now)
				s.now = s.now.Add(time.Second)
				if was && !s.turns.closed(s.now) {
					s.answers(s.pods)
					s.tries(groups[first])
					s.tries(groups[1-first])
					apart = false
				}
				if apart {
					s.answers(g)
					s.tries(g)
				}
			}
			if !apart {
				s.answers(s.pods)
				s.tries(s.pods)
			}
			s.now = s.now.Add(5 * time.Second)
		}
		if s.waits() || s.closes != 1 {
			t.Errorf("after %d rounds pods still wait: %v; the NICs were closed %d times", rounds, s.waits(), s.closes)
		}
	}
}

func TestTurns(t *testing.T) {
	var turns turns
	now := time.Now()
	turns.refuse([]string{"b"}, 1, now)
	turns.refuse([]string{"a"}, 0, now)
	turns.refuse([]string{"c"}, 0, now.Add(turnEnds/2))
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
		turns.refuse([]string{fmt.Sprint(i)}, i, now.Add(turnEnds))
	}
	if got := turns.gpus(now.Add(turnEnds)); len(got) != mostTurns || got[mostTurns-1] != fmt.Sprint(2*mostTurns-1) {
		t.Error(got)
	}
}
