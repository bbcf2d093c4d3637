// SPDX-License-Identifier: Apache-2.0

package proving

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func free(pairs.Pair) bool { return false }

// A pair is tried if a proof can say something new of it.
func TestDue(t *testing.T) {
	hour := time.Hour
	for name, c := range map[string]struct {
		pair  node.Pair
		tried func(*Schedule)
		want  bool
	}{
		"never tried":                          {node.Pair{Outcome: chain.Direct}, nil, true},
		"unknown":                              {node.Pair{Outcome: chain.OutcomeUnknown}, nil, true},
		"staged by its route":                  {node.Pair{Outcome: chain.Staged}, nil, false},
		"lost by the log":                      {node.Pair{Outcome: chain.Lost, ByTrial: true}, nil, true},
		"proven just now":                      {node.Pair{Outcome: chain.Direct, Taken: noon.Add(-hour)}, nil, false},
		"proven long ago":                      {node.Pair{Outcome: chain.Direct, Taken: noon.Add(-24 * hour)}, nil, true},
		"staged by a proof":                    {node.Pair{Outcome: chain.Staged, ByTrial: true, Taken: noon.Add(-hour)}, nil, false},
		"staged by an old proof":               {node.Pair{Outcome: chain.Staged, ByTrial: true, Taken: noon.Add(-24 * hour)}, nil, true},
		"nothing came of it":                   {node.Pair{}, func(s *Schedule) { s.Tried(pairs.Pair{}, false, noon.Add(-23*hour)) }, false},
		"nothing came of it, long ago":         {node.Pair{}, func(s *Schedule) { s.Tried(pairs.Pair{}, false, noon.Add(-24*hour)) }, true},
		"its proof does not hold any more":     {node.Pair{}, func(s *Schedule) { s.Tried(pairs.Pair{}, true, noon.Add(-hour)) }, true},
		"its proof has never held":             {node.Pair{}, func(s *Schedule) { s.Tried(pairs.Pair{}, true, noon.Add(-hour/2)) }, false},
		"it was ended for a pod":               {node.Pair{}, func(s *Schedule) { s.Ended(pairs.Pair{}, noon) }, true},
		"another process has proven it":        {node.Pair{Taken: noon}, func(s *Schedule) { s.Ended(pairs.Pair{}, noon) }, false},
		"the cost of the pair makes no change": {node.Pair{}, func(s *Schedule) { s.Tried(pairs.Pair{Cost: 3}, false, noon) }, false},
	} {
		s := &Schedule{Period: 24 * hour}
		if c.tried != nil {
			c.tried(s)
		}
		n := &node.Node{Pairs: []node.Pair{c.pair}}
		if _, ok := s.Next(n, free, noon); ok != c.want {
			t.Errorf("%s: due %v", name, ok)
		}
		if _, ok := s.Next(n, func(pairs.Pair) bool { return true }, noon); ok {
			t.Errorf("%s: it is with a pod", name)
		}
	}
}

// Each pair has its turn before one is tried twice: first those that pods are given, the nearest first.
func TestTurns(t *testing.T) {
	n := &node.Node{Pairs: []node.Pair{
		{GPU: "g0", NIC: "n0", Distance: "PIX"},
		{GPU: "g1", NIC: "n0", Outcome: chain.Direct, Distance: "SYS"},
		{GPU: "g1", NIC: "n1", Outcome: chain.Direct, Distance: "PIX"},
		{GPU: "g2", NIC: "n1", Outcome: chain.Direct, Distance: "PXB", Taken: noon.Add(-48 * time.Hour)},
		{GPU: "g3", NIC: "n1", Outcome: chain.Direct, Distance: "PIX", Taken: noon.Add(-47 * time.Hour)},
		{GPU: "g4", NIC: "n1", Outcome: chain.Refused, Distance: "PIX"},
	}}
	s := &Schedule{Period: time.Hour}
	var got []string
	for range 6 {
		x, ok := s.Next(n, func(x pairs.Pair) bool { return false }, noon)
		if !ok {
			break
		}
		got = append(got, x.GPU+x.NIC)
		for i := range n.Pairs {
			if y := &n.Pairs[i]; y.GPU == x.GPU && y.NIC == x.NIC {
				if y.GPU == "g0" { // for which a pod comes each time
					s.Ended(x, noon)
				} else {
					y.Taken = noon
					s.Tried(x, true, noon)
				}
			}
		}
	}
	if want := "[g1n1 g1n0 g0n0 g0n0 g0n0 g0n0]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
