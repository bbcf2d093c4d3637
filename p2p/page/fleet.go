// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"slices"

	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// Fleet collects the data of a page from the nodes of a fleet.Merge. The caller sets the Merge's
// Observe to the Fleet's method before it adds the first node. NewFleet makes a Fleet.
type Fleet struct {
	*pool
	nodes map[int]seen // by fleet.Node.Added
	cells int
}

// seen is what the report does not have of a node.
type seen struct {
	kind     int
	since    int // from its baseline, or -1
	baseline text
}

// NewFleet returns a Fleet without nodes.
func NewFleet() *Fleet { return &Fleet{pool: newPool("fleet"), nodes: map[int]seen{}} }

// Observe adds a node to the page. It has the arguments of fleet.Merge's Observe.
func (f *Fleet) Observe(at int, run *result.Run, same int) {
	if run == nil {
		f.nodes[at] = f.nodes[same]
		return
	}
	before := len(f.out.Kinds)
	s := seen{since: -1, baseline: none}
	s.kind, _ = f.kind(*run, maxCells-f.cells)
	if s.kind == before {
		f.cells += len(f.out.Kinds[s.kind].Cells)
	}
	if run.Baseline != "" {
		s.since, s.baseline = f.drifts(run.Drift), f.text(run.Baseline)
	}
	f.nodes[at] = s
}

// Page returns the page of a report about the nodes that Observe has added. The caller calls it once.
func (f *Fleet) Page(r fleet.Report) *Page {
	all := []cause{}
	for _, c := range r.Causes {
		all = append(all, f.cause(c))
	}
	f.causes(all, r.ByRemedy())
	f.out.Rows, f.out.KindsOf, f.out.Like = f.rows(r), r.Groups, f.keep(r.Like)
	for _, name := range r.Gone {
		f.out.Gone = append(f.out.Gone, f.keep(name))
	}
	return &Page{f.out}
}

func (p *pool) cause(c fleet.Cause) cause {
	return cause{
		Result: c.Result, What: p.text(c.What), Nodes: len(c.Nodes), Scope: p.list(c.Scope, maxNames), Scopes: len(c.Scope),
		Why: p.list(c.Why, maxWhy), Remedy: p.fix(c.Remedy), Repeat: p.list(c.Repeat, maxNames),
	}
}

// rows are the nodes, the worst first, and alike ones as one.
func (f *Fleet) rows(r fleet.Report) []row {
	out := []row{}
	places := map[[4]int]int{}
	differs := map[*result.Drift]int{} // by the first one
	of := func(all []result.Drift) int {
		if len(all) == 0 {
			return f.drifts(nil)
		}
		at, ok := differs[&all[0]]
		if !ok {
			at = f.drifts(all)
			differs[&all[0]] = at
		}
		return at
	}
	for _, n := range r.Nodes {
		x := row{Kernel: f.text(n.Kernel), Differs: -1, Since: -1}
		its := sort{
			Result: n.Result, GPUs: n.GPUs, NICs: n.NICs, Summary: counts(n.Summary), Kind: -1,
			Failing: f.list(n.Failing, maxNames), Fails: len(n.Failing), Unknown: f.list(n.Unknown, maxNames), Unknowns: len(n.Unknown),
			Causes: []int{}, SinceFrom: none, SinceErr: f.text(n.SinceError), Error: f.text(n.Error),
		}
		for _, c := range n.Causes {
			if c < len(f.out.Causes) {
				its.Causes = append(its.Causes, c)
			}
		}
		if s, ok := f.nodes[n.Added]; ok {
			its.Kind, its.SinceFrom, x.Since, x.Differs = s.kind, s.baseline, s.since, of(n.Differs)
		}
		if n.Since != nil {
			its.SinceFrom, x.Since = none, of(n.Since)
		}
		x.Sort = once(f.pool, &f.out.Sorts, its)
		key := [4]int{x.Sort, int(x.Kernel), x.Differs, x.Since}
		at, ok := places[key]
		if !ok {
			at = len(out)
			out, places[key] = append(out, x), at
		}
		out[at].Nodes = append(out[at].Nodes, f.keep(n.Node))
	}
	f.sort(out)
	return out
}

// sort puts the worst rows first: by their result, then by what became worse, then by their pairs.
func (f *Fleet) sort(rows []row) {
	worse := func(x row) int {
		if x.Since < 0 {
			return 0
		}
		return f.out.Drifts[x.Since].Worse
	}
	hidden := func(s counts) int { return s.Lost + s.Broken } // a program does not see these
	bad := func(s counts) int { return s.Lost + s.Broken + s.Refused + s.Staged }
	slices.SortStableFunc(rows, func(a, b row) int {
		x, y := f.out.Sorts[a.Sort], f.out.Sorts[b.Sort]
		return cmp.Or(
			cmp.Compare(slices.Index(result.Ranks, x.Result), slices.Index(result.Ranks, y.Result)),
			cmp.Compare(hidden(y.Summary), hidden(x.Summary)), cmp.Compare(bad(y.Summary), bad(x.Summary)),
			cmp.Compare(worse(b), worse(a)), cmp.Compare(y.Summary.Unknown, x.Summary.Unknown), cmp.Compare(y.Fails, x.Fails),
		)
	})
}
