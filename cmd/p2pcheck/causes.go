// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// told is a cause, and those that are told with it: the same change is for all, on
// the same nodes.
type told struct {
	cause
	with []cause
}

// together are the causes as they are told: the worst of those that the same change is
// for stands for the others.
func (r reportResult) together() []told {
	var out []told
	for _, result := range ranks {
		for _, c := range r.Causes {
			if c.Result != result {
				continue
			}
			if i := slices.IndexFunc(out, func(t told) bool { return t.mendedWith(c) }); i >= 0 {
				out[i].with = append(out[i].with, c)
			} else {
				out = append(out, told{cause: c})
			}
		}
	}
	return out
}

// mendedWith reports a cause on the same nodes that the same change is for, or of which
// the one's remedy refers to the other.
func (c cause) mendedWith(d cause) bool {
	if c.Remedy == nil || d.Remedy == nil || !slices.Equal(c.Nodes, d.Nodes) {
		return false
	}
	refers := func(x, y cause) bool {
		return strings.Contains(y.id(), "-") && strings.Contains(x.Remedy.Change, y.id())
	}
	return c.Remedy.proposal() == d.Remedy.proposal() || refers(c, d) || refers(d, c)
}

// id is that of the cause's check, or "pairs".
func (c cause) id() string {
	id, _, _ := strings.Cut(c.What, ":")
	return id
}

// proposal is the first thing that a remedy proposes, for any device.
func (x *fix) proposal() string {
	change, _, _ := strings.Cut(x.Change, ", or ")
	return change + "\n" + ofAnyDevice(x.Command)
}

// causesText tells of those of one result, the first of them in full.
func causesText(b *strings.Builder, a *app, all []told, result string, said map[remedy]bool) {
	var rest []string
	shown := 0
	for _, t := range all {
		if t.Result != result {
			continue
		}
		if shown++; shown > shownCauses {
			rest = append(rest, t.id())
			continue
		}
		t.text(b, a, said)
	}
	if len(rest) > 0 {
		fmt.Fprintf(b, "\n%s  and %d more causes: %s\n", a.paint(resultColors[result], fmt.Sprintf("%-7s", strings.ToUpper(result))), len(rest), strings.Join(slices.Compact(rest), ", "))
	}
}

func (t told) text(b *strings.Builder, a *app, said map[remedy]bool) {
	fmt.Fprintf(b, "\n%s  %s\n", a.paint(resultColors[t.Result], fmt.Sprintf("%-7s", strings.ToUpper(t.Result))), t.What)
	fmt.Fprintf(b, "  on %s: %s\n", plural(len(t.Nodes), "node"), first(t.Nodes, shownNodes))
	if len(t.Scope) > 0 {
		on := ""
		if len(t.Nodes) > 1 {
			on = ", on " + t.Nodes[0]
		}
		fmt.Fprintf(b, "  %s%s\n", first(t.Scope, shownPairs), on)
	}
	for _, why := range t.Why {
		fmt.Fprintf(b, "  %s\n", why)
	}
	if t.Remedy != nil {
		(&remedy{Change: t.Remedy.Change, Command: t.Remedy.Command, Weakens: t.Remedy.Weakens}).text(b, said)
	}
	var with []string
	for _, c := range t.with {
		if name := fmt.Sprintf("%s (%s)", c.id(), c.Result); !slices.Contains(with, name) {
			with = append(with, name)
		}
	}
	if len(with) > 0 {
		fmt.Fprintf(b, "  the same for: %s\n", strings.Join(with, ", "))
	}
}
