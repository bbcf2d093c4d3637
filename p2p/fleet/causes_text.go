// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// causesText writes the causes of one result, the first ones in full.
func causesText(b *strings.Builder, s render.Style, all []*told, rank string, said map[result.Remedy]bool) {
	var rest []Cause
	shown := 0
	for _, t := range all {
		if t.Result != rank {
			continue
		}
		if shown++; shown > shownCauses {
			rest = append(rest, t.Cause)
			continue
		}
		t.text(b, s, said)
	}
	if len(rest) > 0 {
		restText(b, s, rank, rest)
	}
}

// restText names the causes that the text leaves out: checks by their IDs, and the first pairs.
func restText(b *strings.Builder, s render.Style, rank string, rest []Cause) {
	var ids []string
	var pairs []Cause
	for _, c := range rest {
		if c.id() == ofPairs {
			pairs = append(pairs, c)
		} else if !slices.Contains(ids, c.id()) {
			ids = append(ids, c.id())
		}
	}
	text := "and " + human.Plural(len(rest), "more cause")
	if len(ids) > 0 {
		text += ": " + strings.Join(ids, ", ")
	}
	word := fmt.Sprintf("%-7s", strings.ToUpper(rank))
	folded := human.Fold(text, word+"  ", "    ")
	fmt.Fprintf(b, "\n%s%s\n", s.Paint(render.ResultColors[rank], word), strings.TrimPrefix(folded, word))
	for _, c := range pairs[:min(len(pairs), render.ShownPairs)] {
		text := fmt.Sprintf("%s: %s, on %s", human.Plural(len(c.Scope), "pair"), human.First(c.Scope, render.ShownPairs), c.Nodes[0])
		if more := len(c.Nodes) - 1; more > 0 {
			text += fmt.Sprintf(", and some on %s", human.Plural(more, "more node"))
		}
		line(b, text)
	}
	if more := len(pairs) - render.ShownPairs; more > 0 {
		fmt.Fprintf(b, "  and %s of pairs\n", human.Plural(more, "more cause"))
	}
}

// line writes one line of a cause, folded.
func line(b *strings.Builder, text string) { fmt.Fprintln(b, human.Fold(text, "  ", "    ")) }

func (t *told) text(b *strings.Builder, s render.Style, said map[result.Remedy]bool) {
	fmt.Fprintf(b, "\n%s  %s\n", s.Paint(render.ResultColors[t.Result], fmt.Sprintf("%-7s", strings.ToUpper(t.Result))), t.What)
	line(b, fmt.Sprintf("on %s: %s", human.Plural(len(t.Nodes), "node"), human.First(t.Nodes, shownNodes)))
	on := "" // the node that has the scope
	if len(t.Nodes) > 1 {
		on = ", on " + t.Nodes[0]
	}
	if len(t.Scope) > 0 {
		line(b, human.First(t.Scope, render.ShownPairs)+on)
	}
	for _, why := range t.Why {
		line(b, why)
	}
	if t.Remedy != nil {
		render.Remedy(b, s, &result.Remedy{Change: t.Remedy.Change, Command: t.Remedy.Command, Weakens: t.Remedy.Weakens}, said)
	}
	t.withText(b, on)
}

// withText names the other causes of a group: checks by their IDs, and the first pairs, for each result.
func (t *told) withText(b *strings.Builder, on string) {
	var with []string
	pairs := map[string][]string{}
	for _, c := range t.with {
		name := fmt.Sprintf("%s (%s)", c.id(), c.Result)
		switch {
		case c.id() == ofPairs:
			pairs[c.Result] = append(pairs[c.Result], c.Scope...)
		case !slices.Contains(with, name):
			with = append(with, name)
		}
	}
	if len(with) > 0 {
		line(b, "the same for: "+strings.Join(with, ", "))
	}
	for _, rank := range result.Ranks {
		if these := pairs[rank]; len(these) > 0 {
			line(b, fmt.Sprintf("the same for %s (%s)%s: %s", human.Plural(len(these), "pair"), rank, on, human.First(these, render.ShownPairs)))
		}
	}
}
