// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Summary counts pairs by outcome. Pairs of GPUs without memory of their own are outside: they do
// not count.
type Summary struct {
	Direct  int `json:"direct"`
	Staged  int `json:"staged"`
	Refused int `json:"refused"`
	Lost    int `json:"lost"`
	Broken  int `json:"broken"`
	Unknown int `json:"unknown"`
	Outside int `json:"outside"`
}

// Total returns how many pairs count.
func (s Summary) Total() int { return s.Direct + s.Bad() + s.Unknown }

// Bad returns how many pairs are known not to be direct.
func (s Summary) Bad() int { return s.Staged + s.Refused + s.Lost + s.Broken }

func (s *Summary) add(p Pair) {
	switch {
	case !p.Counts:
		s.Outside++
	case p.Outcome == chain.Direct.String():
		s.Direct++
	case p.Outcome == chain.Staged.String():
		s.Staged++
	case p.Outcome == chain.Refused.String():
		s.Refused++
	case p.Outcome == chain.Lost.String():
		s.Lost++
	case p.Outcome == chain.Broken.String():
		s.Broken++
	default:
		s.Unknown++
	}
}

// String counts the pairs of each outcome.
func (s Summary) String() string {
	text := human.Plural(s.Total(), "pair") + ": " + s.Counts()
	if s.Outside > 0 {
		text += fmt.Sprintf("; %d of devices without memory of their own, which do not count", s.Outside)
	}
	return text
}

// Counts names how many pairs have each outcome. Lost and broken ones are named where there are
// some.
func (s Summary) Counts() string {
	text := fmt.Sprintf("%d direct, %d staged, %d refused, ", s.Direct, s.Staged, s.Refused)
	if s.Lost > 0 {
		text += fmt.Sprintf("%d lost, ", s.Lost)
	}
	if s.Broken > 0 {
		text += fmt.Sprintf("%d broken, ", s.Broken)
	}
	return text + fmt.Sprintf("%d unknown", s.Unknown)
}
