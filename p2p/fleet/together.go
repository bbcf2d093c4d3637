// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// told is a cause, and the others that the same change mends, on these nodes or on others.
type told struct {
	Cause
	nodes   []string // of all of them
	with    []Cause
	at      []int    // of all of them, in Report.Causes
	changes []change // of all of them
}

// together groups causes that the same change mends: each change is in one group. The worst cause of a group
// stands for it. The worst groups are first, then those of most nodes; of two alike the one without a change is last.
func (r Report) together() []*told {
	var proposed []*told
	by := map[string]*told{} // by their proposal
	bare := map[string]bool{}
	for _, c := range r.Causes {
		bare[c.change().proposal] = true
	}
	for _, rank := range result.Ranks {
		for at, c := range r.Causes {
			if c.Result != rank {
				continue
			}
			its := c.change()
			if plain := its.plain(); bare[plain] {
				its.proposal = plain
			}
			if t := by[its.proposal]; t != nil && its.proposal != "" {
				t.with, t.changes, t.at = append(t.with, c), append(t.changes, its), append(t.at, at)
				continue
			}
			t := &told{Cause: c, changes: []change{its}, at: []int{at}}
			by[its.proposal], proposed = t, append(proposed, t)
		}
	}
	// Of groups on the same nodes, the remedy of one can name the check of another.
	var out []*told
	on := map[string][]*told{} // by their nodes
	for _, t := range proposed {
		t.union()
		nodes := strings.Join(t.nodes, "\x00")
		if i := slices.IndexFunc(on[nodes], t.mendedWith); i >= 0 {
			u := on[nodes][i]
			u.with, u.changes, u.at = append(append(u.with, t.Cause), t.with...), append(u.changes, t.changes...), append(u.at, t.at...)
			continue
		}
		out, on[nodes] = append(out, t), append(on[nodes], t)
	}
	slices.SortStableFunc(out, func(x, y *told) int {
		return cmp.Or(cmp.Compare(slices.Index(result.Ranks, x.Result), slices.Index(result.Ranks, y.Result)), cmp.Compare(len(y.nodes), len(x.nodes)), cmp.Compare(x.lacks(), y.lacks()))
	})
	return out
}

// union sets the nodes of a group.
func (t *told) union() {
	t.nodes = t.Nodes
	if !slices.ContainsFunc(t.with, func(c Cause) bool { return !slices.Equal(c.Nodes, t.Nodes) }) {
		return
	}
	t.nodes = slices.Clone(t.Nodes)
	for _, c := range t.with {
		t.nodes = append(t.nodes, c.Nodes...)
	}
	slices.Sort(t.nodes)
	t.nodes = slices.Compact(t.nodes)
}

// lacks is 1 for a group without a change.
func (t *told) lacks() int {
	if t.Remedy == nil {
		return 1
	}
	return 0
}

// mendedWith reports that a change of one group names a check of the other.
func (t *told) mendedWith(u *told) bool {
	return slices.ContainsFunc(t.changes, func(c change) bool { return slices.ContainsFunc(u.changes, c.mends) })
}

// ByRemedy returns groups of causes, as indices of Causes: the remedy of the first one mends all of a group, and is
// the remedy of no other group. The causes of a group can have different nodes. The worst are first.
func (r Report) ByRemedy() [][]int {
	out := [][]int{}
	for _, t := range r.together() {
		out = append(out, t.at)
	}
	return out
}

// change is what a cause proposes.
type change struct {
	id       string // of the cause
	text     string
	proposal string // the first alternative, without the names of devices; "" without a remedy
}

func (c Cause) change() change {
	x := change{id: c.id()}
	if c.Remedy != nil {
		first, _, _ := strings.Cut(c.Remedy.Change, ", or ")
		x.text, x.proposal = c.Remedy.Change, first+"\n"+result.OfAnyDevice(c.Remedy.Command)
		if render.Place(c.Remedy.Command) != "" {
			x.proposal = c.Remedy.Command // a parameter is one change, whatever is said of it
		}
	}
	return x
}

// plain is the proposal without the reason that follows a colon: "run a newer kernel" of "run a newer kernel: 5.12 is
// the first that can". Another cause may propose just that.
func (c change) plain() string {
	words, command, _ := strings.Cut(c.proposal, "\n")
	before, _, found := strings.Cut(words, ": ")
	if !found || command != "" {
		return c.proposal
	}
	return before + "\n"
}

// mends reports that the remedy of one cause names the check of the other.
func (c change) mends(d change) bool {
	if c.proposal == "" || d.proposal == "" {
		return false
	}
	refers := func(x, y change) bool { return strings.Contains(y.id, "-") && strings.Contains(x.text, y.id) }
	return refers(c, d) || refers(d, c)
}
