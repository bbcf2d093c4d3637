// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// whyText writes the reasons of a group, each once. If reasons differ only in places, it writes
// the first few.
func whyText(b *strings.Builder, s Style, group []result.Pair) {
	known := kinds{}
	for _, kind := range known.all(group[0].Why) {
		var lines []string
		for _, p := range group {
			for _, w := range p.Why {
				if known.of(w) == kind && !slices.Contains(lines, w) {
					lines = append(lines, w)
				}
			}
		}
		shown := lines
		if !s.Verbose && len(lines) > ShownPairs {
			shown = lines[:ShownPairs]
		}
		for _, w := range shown {
			s.fold(b, "  ", margin, w)
		}
		if more := len(lines) - len(shown); more > 0 {
			fmt.Fprintf(b, "  and %d more like that; -v has all\n", more)
		}
	}
}

// ShownPairs is the number of pairs, devices or reasons of one kind that the text names, unless it
// is verbose.
const ShownPairs = 4

// reasons writes the pairs of one outcome. Pairs that have reasons and remedy in common stand
// together.
func reasons(b *strings.Builder, s Style, r result.Run, l look, told map[result.Remedy]bool) {
	pairs := slices.DeleteFunc(slices.Clone(r.Pairs), func(p result.Pair) bool {
		return p.Outcome != l.outcome.String() || !p.Counts && !s.Verbose
	})
	for _, group := range grouped(pairs, s.Verbose) {
		ids := ""
		if of := r.ToldOf(group); len(of) > 0 {
			ids = " (" + strings.Join(of, ", ") + ")"
		}
		b.WriteString("\n")
		s.head(b, "", l.color, l.headline(group[0]), names(group, s.Verbose)+ids)
		whyText(b, s, group)
		if link, why := unpredicted(group[0]); l.outcome == chain.Broken && link != "" {
			s.fold(b, "  ", margin, "the outcome of a registration is not predicted: "+link+": "+why)
		}
		if s.Verbose {
			for _, note := range group[0].Notes {
				s.label(b, "note: ", note)
			}
		}
		Remedy(b, s, remedyOf(group), told)
	}
}

// unpredicted is the first unknown link before the link that decides, and why it is unknown. The result of
// a registration depends on it.
func unpredicted(p result.Pair) (link, why string) {
	for l := chain.Library; l <= chain.Fabric && l.String() != p.Decides; l++ {
		if its, ok := p.Of(l); ok && its.State == chain.Unknown.String() {
			return its.Link, strings.Join(its.Why, "; ")
		}
	}
	return "", ""
}
