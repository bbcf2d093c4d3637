// SPDX-License-Identifier: Apache-2.0

package proving

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Schedule says which pair is tried next. It is used by one goroutine.
type Schedule struct {
	Period time.Duration // after that a pair is tried again
	past   map[pairs.Pair]attempt
}

// attempt is the last trial of a pair in this process.
type attempt struct {
	at    time.Time
	kept  bool // its result is in the file
	ended bool // early, for a pod
}

// often bounds the proofs of a pair in one period whose circumstances change all the time.
const often = 24

// Next returns the pair whose turn it is. A pair that has a proof is tried again after the period, and one whose
// proof does not hold any more at once. used says that a pod has the GPU or the NIC of a pair.
func (s *Schedule) Next(n *node.Node, used func(pairs.Pair) bool, now time.Time) (next pairs.Pair, ok bool) {
	var list []node.Pair
	for _, x := range n.Pairs {
		if s.due(x, now) && !used(key(x)) {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return next, false
	}
	first := slices.MinFunc(list, func(x, y node.Pair) int {
		return cmp.Or(x.Taken.Compare(y.Taken), s.past[key(x)].at.Compare(s.past[key(y)].at), cmp.Compare(rank(x), rank(y)), cmp.Compare(x.Cost(), y.Cost()))
	})
	return key(first), true
}

// key has the names of a pair, and no cost.
func key(x node.Pair) pairs.Pair { return pairs.Pair{GPU: x.GPU, NIC: x.NIC} }

// rank is lower for a pair that pods are given.
func rank(x node.Pair) int {
	if x.Outcome == chain.Direct {
		return 0
	}
	return 1
}

// due reports that a proof can add to what is known of a pair. A pair that is bad by the build of the machine is not
// tried: a proof does not change that.
func (s *Schedule) due(x node.Pair, now time.Time) bool {
	if x.Outcome.Bad() && !x.ByTrial {
		return false
	}
	last, tried := s.past[key(x)]
	since := now.Sub(last.at)
	switch {
	case !x.Taken.IsZero() && now.Sub(x.Taken) < s.Period: // the proof holds
		return false
	case !tried, last.ended:
		return true
	case last.kept: // and does not hold any more
		return since >= s.Period/often
	}
	return since >= s.Period
}

// Tried says that a pair was tried, and whether the result was kept.
func (s *Schedule) Tried(x pairs.Pair, kept bool, now time.Time) {
	s.set(x, attempt{at: now, kept: kept})
}

// Ended says that a trial was ended early. The pair's turn comes after that of the others.
func (s *Schedule) Ended(x pairs.Pair, now time.Time) { s.set(x, attempt{at: now, ended: true}) }

func (s *Schedule) set(x pairs.Pair, a attempt) {
	if s.past == nil {
		s.past = map[pairs.Pair]attempt{}
	}
	x.Cost = 0
	s.past[x] = a
}
