// SPDX-License-Identifier: Apache-2.0

package result

import "testing"

// The headline groups the pairs that are not direct by outcome and link.
func TestHeadline(t *testing.T) {
	pair := func(outcome, decides string) Pair { return Pair{Outcome: outcome, Decides: decides, Counts: true} }
	for want, pairs := range map[string][]Pair{
		"no pair to check":                {{Outcome: "staged"}},
		"1 of 1 pairs direct":             {pair("direct", "")},
		"0 of 1 pairs direct (1 unknown)": {pair("unknown", "")},
		"1 of 4 pairs direct (2 refused: library, 1 lost: addresses)": {pair("refused", "library"), pair("direct", ""), pair("lost", "addresses"), pair("refused", "library"), {Outcome: "staged"}},
	} {
		r := Run{Pairs: pairs}
		for _, p := range pairs {
			r.Summary.add(p)
		}
		if got := r.Headline(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
