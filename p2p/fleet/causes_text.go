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
	fmt.Fprintf(b, "\n%s  %s\n", s.Paint(render.ResultColors[t.Result], fmt.Sprintf("%-7s", strings.ToUpper(t.Result))), t.heading())
	line(b, fmt.Sprintf("on %s: %s", human.Plural(len(t.nodes), "node"), human.First(t.nodes, shownNodes)))
	on := "" // the node that has the scope
	if len(t.nodes) > 1 {
		on = ", on " + t.Nodes[0]
	}
	if len(t.Scope) > 0 {
		line(b, human.First(t.Scope, render.ShownPairs)+on)
	}
	for _, why := range t.Why {
		line(b, why)
	}
	if _, expected := t.check(); expected != "" {
		fmt.Fprintln(b, human.Fold(expected, "  expected: ", "            "))
	}
	if t.Remedy != nil {
		render.Remedy(b, s, &result.Remedy{Change: t.Remedy.Change, Command: t.Remedy.Command, Weakens: t.Remedy.Weakens}, said)
	}
	all := t.Cause
	for _, c := range t.with {
		all.Repeat = slices.Clone(all.Repeat)
		all.repeats(c.Repeat)
	}
	if len(all.Repeat) > 0 {
		line(b, "these checks say the same of the pairs: "+strings.Join(all.Repeat, ", "))
	}
	t.withText(b)
}

// verbs say what a check or pairs do that have a result.
var verbs = map[string][2]string{"fail": {"fails", "fail"}, "unknown": {"is unknown", "are unknown"}, "warn": {"warns", "warn"}}

// withText names the other causes of a group, for each result: checks by their IDs, and the first pairs. It names
// the nodes that have them, where these are not all of the group's.
func (t *told) withText(b *strings.Builder) {
	own := t.id()
	for _, rank := range result.Ranks {
		var checks []string
		var same, pairs []Cause
		nodes := map[string][]string{}
		for _, c := range t.with {
			switch id := c.id(); {
			case c.Result != rank:
			case id == ofPairs:
				pairs = append(pairs, c)
			case id == own && rank == t.Result:
				same = append(same, c)
			default:
				if nodes[id] == nil {
					checks = append(checks, id)
				}
				nodes[id] = append(nodes[id], c.Nodes...)
			}
		}
		t.scopesText(b, same, func(n int) string { return fmt.Sprintf("%s %s for %d more", own, verbs[rank][0], n) })
		for i, id := range checks {
			slices.Sort(nodes[id])
			checks[i] = id + t.where(slices.Compact(nodes[id]))
		}
		if len(checks) > 0 {
			line(b, fmt.Sprintf("by this change, too: what %s in %s", verbs[rank][0], strings.Join(checks, ", ")))
		}
		t.scopesText(b, pairs, func(n int) string {
			return human.Plural(n, "pair") + " that " + verbs[rank][min(n-1, 1)]
		})
	}
}

// scopesText names the first pairs or devices of some causes of a group, each on the first node of its cause. A cause
// without them has its node there. The words say how many there are.
func (t *told) scopesText(b *strings.Builder, all []Cause, words func(n int) string) {
	var names []string
	for _, c := range all {
		for _, name := range c.Scope {
			if len(t.nodes) > 1 {
				name += " on " + c.Nodes[0]
			}
			names = append(names, name)
		}
		if len(c.Scope) == 0 {
			names = append(names, c.Nodes...)
		}
	}
	if len(names) > 0 {
		line(b, fmt.Sprintf("by this change, too: %s: %s", words(len(names)), human.First(names, render.ShownPairs)))
	}
}

// where names nodes, if they are not all of the group.
func (t *told) where(nodes []string) string {
	if len(nodes) >= len(t.nodes) {
		return ""
	}
	return " (on " + human.First(nodes, render.ShownPairs) + ")"
}
