// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/result"
)

// told is a cause, and the causes that the text names beside it: the same change mends all of them, on the
// same nodes.
type told struct {
	Cause
	with    []Cause
	at      []int    // of all of them, in Report.Causes
	changes []change // of all of them
}

// together groups causes that the same change mends. The worst of them stands for the group.
func (r Report) together() []*told {
	var out []*told
	on := map[string][]*told{} // by their nodes
	for _, rank := range result.Ranks {
		for at, c := range r.Causes {
			if c.Result != rank {
				continue
			}
			nodes, its := strings.Join(c.Nodes, "\x00"), c.change()
			if i := slices.IndexFunc(on[nodes], func(t *told) bool { return slices.ContainsFunc(t.changes, its.mends) }); i >= 0 {
				t := on[nodes][i]
				t.with, t.changes, t.at = append(t.with, c), append(t.changes, its), append(t.at, at)
				continue
			}
			t := &told{Cause: c, changes: []change{its}, at: []int{at}}
			out, on[nodes] = append(out, t), append(on[nodes], t)
		}
	}
	return out
}

// ByRemedy returns groups of causes, as indices of Causes: the causes of a group have the same nodes, and the
// remedy of the first one mends all of them. The worst are first.
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
	}
	return x
}

// mends reports that the same change mends both causes, or that the remedy of one names the other.
func (c change) mends(d change) bool {
	if c.proposal == "" || d.proposal == "" {
		return false
	}
	refers := func(x, y change) bool { return strings.Contains(y.id, "-") && strings.Contains(x.text, y.id) }
	return c.proposal == d.proposal || refers(c, d) || refers(d, c)
}
