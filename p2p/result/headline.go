// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
)

// Headline says how many pairs are direct, or proven to be direct if the run has proofs,
// and the outcomes of the others, with the links that decide: "2 of 4 pairs direct (2
// refused: library)".
func (r Run) Headline() string {
	if r.Summary.Total() == 0 {
		return "no pair to check"
	}
	direct := fmt.Sprintf("%d of %d pairs direct", r.Summary.Direct, r.Summary.Total())
	if r.Live != nil {
		direct = fmt.Sprintf("%d of %d pairs proven direct", r.Live.Proven.Direct, r.Summary.Total())
	}
	var kinds []string
	times := map[string]int{}
	for _, p := range r.Pairs {
		if !p.Counts || p.Outcome == chain.Direct.String() {
			continue
		}
		kind := p.Outcome
		if p.Decides != "" {
			kind += ": " + p.Decides
		}
		if times[kind]++; times[kind] == 1 {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return direct
	}
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", times[kind], kind)
	}
	return direct + " (" + strings.Join(kinds, ", ") + ")"
}
