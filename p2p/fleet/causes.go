// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// Cause is one reason why nodes fail, or why their state is unknown.
type Cause struct {
	Result string      `json:"result"` // "fail", "unknown", or "warn" of a node that has nothing worse
	What   string      `json:"what"`   // a check's ID and title, or the outcome of pairs
	Nodes  []string    `json:"nodes"`  // the nodes that have this cause
	Scope  []string    `json:"scope"`  // the devices that it is about, on the first of these nodes
	Why    []string    `json:"why"`    // the reasons
	Remedy *result.Fix `json:"remedy"` // what to change; null without a remedy

	// Repeat are the checks that say the same of a cause of pairs.
	Repeat []string `json:"-"`
}

// ofPairs is the id of causes about pairs, which belong to no check.
const ofPairs = "pairs"

// id is the ID of the cause's check, or ofPairs.
func (c Cause) id() string {
	id, _, _ := strings.Cut(c.What, ":")
	return id
}

// check is the ID and the title of the cause's check. The title says what the check expects, and not what
// is wrong. Both are "" of a cause that belongs to no check.
func (c Cause) check() (id, title string) {
	id, title, ok := strings.Cut(c.What, ": ")
	if !ok || id == ofPairs {
		return "", ""
	}
	return id, title
}

// heading is the cause as a heading: the ID of a check, or what becomes of pairs.
func (c Cause) heading() string {
	if id, _ := c.check(); id != "" {
		return id
	}
	return c.What
}

// key is the same for causes that differ in the names of devices at most.
func (c Cause) key() string {
	parts := append([]string{c.What, c.Result}, c.Why...)
	if c.Remedy != nil {
		parts = append(parts, "\x00remedy", c.Remedy.Change)
	}
	return strings.Join(parts, "\x00")
}

// causes are the causes of all nodes so far.
type causes struct {
	all   []*Cause
	byKey map[string]*Cause
	// scope has the scopes of causes that this node is the first to have.
	node  string
	scope map[*Cause]map[string]bool
	had   []*Cause // all of that node
}

// list is all causes.
func (cs *causes) list() []Cause {
	out := make([]Cause, len(cs.all))
	for i, c := range cs.all {
		out[i] = *c
	}
	return out
}

// explain adds the causes for which a node is not good: its errors, its pairs, then its checks. It returns them.
func (cs *causes) explain(name string, run result.Run) []*Cause {
	cs.node, cs.scope, cs.had = name, map[*Cause]map[string]bool{}, nil
	if len(run.Said) > 0 {
		cs.add(Cause{Result: "unknown", What: "not all could be looked at", Why: run.Said})
	}
	if slices.ContainsFunc(run.Drift, result.Drift.Worse) {
		cs.add(Cause{Result: "fail", What: "worse than its baseline", Why: []string{"p2pcheck diff " + run.Baseline + " names them"}})
	}
	told := run.Told()
	repeat := map[string][]string{} // checks, by what they are about
	for i, f := range run.Checks {
		if told[i] && (f.Result == "fail" || f.Result == "unknown" && f.Decides) {
			for _, name := range f.Scope {
				repeat[name] = append(repeat[name], f.ID)
			}
		}
	}
	for _, p := range run.Pairs {
		if !p.Counts || p.Outcome == "direct" {
			continue
		}
		c := Cause{Result: "fail", What: ofPairs + ": " + render.Heading(p), Scope: []string{p.GPU + " -> " + p.NIC}, Why: p.Why}
		if p.Outcome == "unknown" {
			c.Result = "unknown"
		}
		if p.Remedy != nil {
			c.Remedy = &result.Fix{Change: p.Remedy.Change, Command: p.Remedy.Command, Weakens: p.Remedy.Weakens}
		}
		x := cs.add(c)
		for _, name := range []string{p.GPU, p.GPU + " -> " + p.NIC} {
			x.repeats(repeat[name])
		}
	}
	warned := result.Verdict(&run, run.Status()) == "warn" // by nothing else
	for i, f := range run.Checks {
		if !told[i] && (f.Result == "fail" || f.Result == "unknown" && f.Decides || f.Result == "warn" && warned) {
			cs.add(Cause{Result: f.Result, What: f.ID + ": " + f.Title, Scope: f.Scope, Why: []string{f.Read}, Remedy: f.Remedy})
		}
	}
	return cs.had
}

// repeats adds checks to those that say the same.
func (c *Cause) repeats(ids []string) {
	for _, id := range ids {
		if !slices.Contains(c.Repeat, id) {
			c.Repeat = append(c.Repeat, strings.Clone(id))
		}
	}
}

// add counts the node to a cause, and returns it. Findings that differ only in the names of devices have one cause.
func (cs *causes) add(c Cause) *Cause {
	key := c.key()
	x := cs.byKey[key]
	if x == nil {
		x = c.own()
		if cs.byKey == nil {
			cs.byKey = map[string]*Cause{}
		}
		cs.all, cs.byKey[key], cs.scope[x] = append(cs.all, x), x, map[string]bool{}
	}
	if n := len(x.Nodes); n == 0 || x.Nodes[n-1] != cs.node {
		x.Nodes, cs.had = append(x.Nodes, cs.node), append(cs.had, x)
	}
	seen, first := cs.scope[x]
	if !first {
		return x
	}
	for _, s := range c.Scope {
		if !seen[s] {
			seen[s] = true
			x.Scope = append(x.Scope, strings.Clone(s))
		}
	}
	return x
}

// own is a copy without scope that keeps nothing of the document that the cause was read from.
func (c Cause) own() *Cause {
	out := &Cause{Result: strings.Clone(c.Result), What: strings.Clone(c.What), Scope: []string{}, Why: []string{}}
	for _, why := range c.Why {
		out.Why = append(out.Why, strings.Clone(why))
	}
	if r := c.Remedy; r != nil {
		out.Remedy = &result.Fix{Change: strings.Clone(r.Change), Command: strings.Clone(r.Command), Weakens: strings.Clone(r.Weakens)}
	}
	return out
}
