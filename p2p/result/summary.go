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
	Unknown int `json:"unknown"`
	Outside int `json:"outside"`
}

// Total returns how many pairs count.
func (s Summary) Total() int { return s.Direct + s.Staged + s.Refused + s.Unknown }

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
	default:
		s.Unknown++
	}
}

// Headline says how many pairs are direct.
func (s Summary) Headline() string {
	if s.Total() == 0 {
		return "no pair to check"
	}
	return fmt.Sprintf("%d of %d pairs direct", s.Direct, s.Total())
}

func (s Summary) String() string {
	text := fmt.Sprintf("%s: %d direct, %d staged, %d refused, %d unknown", human.Plural(s.Total(), "pair"), s.Direct, s.Staged, s.Refused, s.Unknown)
	if s.Outside > 0 {
		text += fmt.Sprintf("; %d of devices without memory of their own, which do not count", s.Outside)
	}
	return text
}
