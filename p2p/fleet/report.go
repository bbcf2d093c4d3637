// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"crypto/sha256"
	"io"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// Node is one node of a report.
type Node struct {
	Node    string         `json:"node"`
	Result  string         `json:"result"` // pass, warn, fail, unknown
	Kernel  string         `json:"kernel"`
	GPUs    int            `json:"gpus"`
	NICs    int            `json:"nics"`
	Summary result.Summary `json:"summary"`
	Failing []string       `json:"failing"` // checks
	Unknown []string       `json:"unknown"` // those that may hide a failure
	Differs []result.Drift `json:"differs"` // from the node that the report compares with
	Error   string         `json:"error"`   // why its file could not be read
}

// Report is what many nodes have in common, and in what they differ.
type Report struct {
	Nodes  []Node  `json:"nodes"`
	Causes []Cause `json:"causes"` // those of most nodes first
	Like   string  `json:"like"`   // the node that the others are compared with
	Groups int     `json:"groups"`

	most   bool // of the nodes are like that one
	larger bool // is a kind without a pair that counts
}

// Status is the exit status of the report: 1 if a node fails or differs, 3 if something is unknown of one.
func (r Report) Status() int {
	status := result.StatusGood
	for _, n := range r.Nodes {
		switch {
		case n.Result == "fail" || slices.ContainsFunc(n.Differs, func(d result.Drift) bool { return !d.AsksMore }):
			return result.StatusBad
		case n.Result == "unknown":
			status = result.StatusUnknown
		}
	}
	return status
}

// shape is nodes whose runs have the same facts.
type shape struct {
	*facts
	kind    sum
	differs []result.Drift
	sample  Node // the first node
	fails   int  // checks of it
}

// Merge merges the runs of nodes.
type Merge struct {
	pool
	nodes  []Node
	shapes []*shape // of the nodes; nil of one whose file cannot be read
	known  map[sum]*shape
	causes causes
	files  map[sum]earlier
	bases  map[sum][]named       // facts by what they are about
	pairs  map[sum]map[id]linked // by what they say
}

// earlier is what was made of a file.
type earlier struct {
	node   int
	causes []*Cause
}

// AddFrom adds a node with the run that Read reads. Files with the same bytes cost the work of one.
func (m *Merge) AddFrom(name string, r io.Reader) error {
	name = terminal.Line(name)
	data, err := whole(r)
	if err != nil {
		return err
	}
	of := sha256.Sum256(data)
	if e, ok := m.files[of]; ok {
		n := m.nodes[e.node]
		n.Node = name
		m.nodes, m.shapes = append(m.nodes, n), append(m.shapes, m.shapes[e.node])
		for _, c := range e.causes {
			c.Nodes = append(c.Nodes, name)
		}
		return nil
	}
	run, err := decode(data)
	if err != nil {
		return err
	}
	if m.files == nil {
		m.files = map[sum]earlier{}
	}
	at := len(m.nodes)
	m.files[of] = earlier{at, m.add(name, run)}
	return nil
}

// add adds the run of a node. It returns the causes for which the node is not good.
func (m *Merge) add(name string, run result.Run) []*Cause {
	if m.known == nil {
		m.known, m.bases, m.pairs = map[sum]*shape{}, map[sum][]named{}, map[sum]map[id]linked{}
	}
	causes := m.causes.explain(name, run)
	n := nodeOf(name, run)
	f := m.factsOf(run)
	of := f.sum()
	if m.known[of] == nil {
		kind := f.kindSum()
		m.share(f)
		m.known[of] = &shape{facts: f, kind: kind, sample: n, fails: run.Tally.Fail}
	}
	m.nodes, m.shapes = append(m.nodes, n), append(m.shapes, m.known[of])
	return causes
}

// share keeps of a run's facts what no run before it has.
func (m *Merge) share(f *facts) {
	things, links := f.things(), f.links()
	if base := m.bases[things]; base != nil {
		f.above(base)
	} else {
		m.bases[things] = f.all
	}
	if pairs := m.pairs[links]; pairs != nil {
		f.pairs = pairs
	} else {
		m.pairs[links] = f.pairs
	}
}

// AddUnread adds a node whose run could not be read.
func (m *Merge) AddUnread(name string, why error) {
	m.nodes = append(m.nodes, Node{Node: terminal.Line(name), Result: "unknown", Failing: []string{}, Unknown: []string{}, Differs: []result.Drift{}, Error: terminal.Line(why.Error())})
	m.shapes = append(m.shapes, nil)
}

// Read is how many nodes have a run.
func (m *Merge) Read() (n int) {
	for _, s := range m.shapes {
		if s != nil {
			n++
		}
	}
	return n
}

func nodeOf(name string, run result.Run) Node {
	n := Node{Node: name, Result: result.Verdict(&run, run.Status()), Kernel: strings.Clone(run.Machine.Kernel), GPUs: result.Counting(run.GPUs), NICs: len(run.NICs), Summary: run.Summary, Failing: []string{}, Unknown: []string{}}
	for _, f := range run.Checks {
		switch {
		case f.Result == "fail" && !slices.Contains(n.Failing, f.ID):
			n.Failing = append(n.Failing, strings.Clone(f.ID))
		case f.Result == "unknown" && f.Decides && !slices.Contains(n.Unknown, f.ID):
			n.Unknown = append(n.Unknown, strings.Clone(f.ID))
		}
	}
	return n
}

// Report compares the nodes with one of the largest kind.
func (m *Merge) Report() Report {
	r := Report{Nodes: append([]Node{}, m.nodes...), Causes: m.causes.list()}
	like, alike, largest := m.majority()
	if like == nil {
		return r
	}
	r.Like = like.sample.Node
	norm := m.index(like.facts)
	compared, kinds := map[*shape]bool{}, map[string]bool{}
	for i, s := range m.shapes {
		if s == nil {
			continue
		}
		if !compared[s] {
			compared[s] = true
			s.differs, _ = m.compare(norm, s.facts)
			kinds[driftKey(s.differs)] = true
		}
		r.Nodes[i].Differs = s.differs
	}
	r.Groups = len(kinds)
	r.most, r.larger = 2*alike > m.Read(), alike < largest
	rank := map[string]int{}
	for i, name := range result.Ranks {
		rank[name] = i
	}
	slices.SortStableFunc(r.Causes, func(x, y Cause) int {
		return cmp.Or(cmp.Compare(rank[x.Result], rank[y.Result]), cmp.Compare(len(y.Nodes), len(x.Nodes)))
	})
	slices.SortStableFunc(r.Nodes, func(x, y Node) int {
		return cmp.Or(cmp.Compare(rank[x.Result], rank[y.Result]), cmp.Compare(len(y.Differs), len(x.Differs)), strings.Compare(x.Node, y.Node))
	})
	return r
}

// driftKey is the same for the same differences.
func driftKey(all []result.Drift) string {
	var b strings.Builder
	for _, d := range all {
		for _, text := range []string{d.What, d.Name, d.Before, d.After, d.Change} {
			b.WriteString(text)
			b.WriteByte(0)
		}
		if d.AsksMore {
			b.WriteByte(1)
		}
	}
	return b.String()
}

// group is the nodes of one kind.
type group struct {
	first int // of the nodes
	of    *shape
	n     int
}

// majority is the first node of the largest group of equal nodes. Of groups of the same size it takes the
// best, so that failing nodes are not the norm. A group without a pair comes last, whatever its size: nodes
// that lost their GPUs are no norm. majority also returns the size of that group and of the largest one.
func (m *Merge) majority() (like *shape, alike, largest int) {
	groups := map[sum]*group{}
	for i, s := range m.shapes {
		if s == nil {
			continue
		}
		g := groups[s.kind]
		if g == nil {
			g = &group{first: i, of: s}
			groups[s.kind] = g
		}
		g.n++
		largest = max(largest, g.n)
	}
	var best *group
	for _, g := range groups {
		if best == nil || g.before(best) {
			best = g
		}
	}
	if best == nil {
		return nil, 0, 0
	}
	// The shape of that node is the norm, and its name is the group's first.
	norm := *best.of
	norm.sample = m.nodes[best.first]
	return &norm, best.n, largest
}

func (g *group) before(h *group) bool {
	x, y := g.of.sample, h.of.sample
	rank := func(n Node) int { return slices.Index(result.Ranks, n.Result) }
	return cmp.Or(
		cmp.Compare(pairless(x), pairless(y)), cmp.Compare(h.n, g.n),
		cmp.Compare(rank(y), rank(x)), cmp.Compare(g.of.fails, h.of.fails), cmp.Compare(y.Summary.Direct, x.Summary.Direct),
		cmp.Compare(g.first, h.first)) < 0
}

// pairless is 1 for a node without a pair that counts.
func pairless(n Node) int {
	if n.Summary.Total() == 0 {
		return 1
	}
	return 0
}
