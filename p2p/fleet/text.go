// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// Limits of the text: --json has all.
const (
	shownDrift  = 5  // differences of a node
	shownNodes  = 16 // names in a line
	shownIDs    = 3  // checks of a node
	shownCauses = 10 // of one result
)

// Text writes the report as text. Its errors are those of w.
func (r Report) Text(w io.Writer, s render.Style) error {
	rows := [][]string{{"NODE", "RESULT", "DIRECT", "KERNEL", "GPUS", "NICS", "FAILING", "UNKNOWN", "DIFFERS FROM " + r.Like}}
	for i := 0; i < len(r.Nodes); {
		row := r.Nodes[i].row()
		alike := 1
		for i+alike < len(r.Nodes) && slices.Equal(r.Nodes[i+alike].row(), row) {
			alike++
		}
		name := r.Nodes[i].Node
		if alike > 1 {
			name += fmt.Sprintf(" and %d more", alike-1)
		}
		rows = append(rows, append([]string{name}, row...))
		i += alike
	}
	if err := human.Table(w, rows, "GPUS", "NICS", "KERNEL"); err != nil {
		return err
	}
	var b strings.Builder
	all, said := r.together(), map[result.Remedy]bool{}
	for _, rank := range result.Ranks {
		causesText(&b, s, all, rank, said)
	}
	drifts(&b, s, r.Nodes, r.Like, func(n Node) []result.Drift { return n.Differs })
	drifts(&b, s, r.Nodes, "the earlier run", func(n Node) []result.Drift { return n.Since })
	for _, n := range r.Nodes {
		if n.SinceError != "" {
			fmt.Fprintf(&b, "\n%s\n", human.Fold(fmt.Sprintf("%s: the earlier run cannot be read: %s", n.Node, n.SinceError), "", "    "))
		}
	}
	if len(r.Gone) > 0 {
		fmt.Fprintf(&b, "\n%s\n", human.Fold(fmt.Sprintf("%s of the earlier run without a run now: %s", human.Plural(len(r.Gone), "node"), human.First(r.Gone, shownNodes)), "", "    "))
	}
	last := fmt.Sprintf("%s, %s of them", human.Plural(len(r.Nodes), "node"), human.Plural(r.Groups, "kind"))
	switch {
	case r.larger:
		last += fmt.Sprintf("; a larger kind has no pair that counts: compared with %s, the best of the largest that have", r.Like)
	case !r.most:
		last += fmt.Sprintf("; no kind is that of most: compared with %s, the best of the largest", r.Like)
	}
	fmt.Fprintf(&b, "\n%s\n", human.Fold(last, "", "    "))
	_, err := io.WriteString(w, b.String())
	return err
}

// row is a node's row of the table, without its name.
func (n Node) row() []string {
	if n.Error != "" {
		return []string{n.Result, "?", "?", "?", "?", "", "its file cannot be read", "?"}
	}
	s := n.Summary
	return []string{
		n.Result, fmt.Sprintf("%d/%d", s.Direct, s.Total()), n.Kernel, fmt.Sprint(n.GPUs), fmt.Sprint(n.NICs),
		human.First(n.Failing, shownIDs), human.First(n.Unknown, shownIDs), fmt.Sprint(len(n.Differs)),
	}
}

// drifts writes the differences from another run, once for all nodes that have the same ones.
func drifts(b *strings.Builder, s render.Style, all []Node, from string, differences func(Node) []result.Drift) {
	var order []*result.Drift // the first of the differences
	nodes, lists, keys := map[*result.Drift][]string{}, map[*result.Drift][]result.Drift{}, map[string]*result.Drift{}
	same := map[*result.Drift]*result.Drift{}
	for _, n := range all {
		its := differences(n)
		if len(its) == 0 {
			continue
		}
		of, ok := same[&its[0]]
		if !ok {
			key := driftKey(its)
			if of = keys[key]; of == nil {
				of = &its[0]
				keys[key], lists[of], order = of, its, append(order, of)
			}
			same[&its[0]] = of
		}
		nodes[of] = append(nodes[of], n.Node)
	}
	for _, of := range order {
		these, differs := nodes[of], lists[of]
		verb := "differs"
		if len(these) > 1 {
			verb = "differ"
		}
		fmt.Fprintf(b, "\n%s\n", human.Fold(fmt.Sprintf("%s %s from %s", human.First(these, shownNodes), verb, from), "", "    "))
		render.Drift(b, s, differs[:min(len(differs), shownDrift)])
		if more := len(differs) - shownDrift; more > 0 {
			fmt.Fprintf(b, "  and %d more\n", more)
		}
	}
}
