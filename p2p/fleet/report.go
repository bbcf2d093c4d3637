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
	Node string `json:"node"` // the name of the node, which is that of its file
	// Result is "pass", "warn", "fail" or "unknown": the worst of the node's pairs and checks.
	Result  string         `json:"result"`
	Kernel  string         `json:"kernel"`  // the kernel's release
	GPUs    int            `json:"gpus"`    // how many GPUs the node has
	NICs    int            `json:"nics"`    // how many NICs the node has
	Summary result.Summary `json:"summary"` // how many pairs have each outcome
	Failing []string       `json:"failing"` // the checks that fail
	Unknown []string       `json:"unknown"` // the checks whose unknown result may hide a failure
	Differs []result.Drift `json:"differs"` // what differs from the node that the report compares with
	Error   string         `json:"error"`   // why the node's file could not be read; "" if it could
	// Since is what differs from an earlier run of the node, with --since. A node without an earlier
	// run has none.
	Since      []result.Drift `json:"since,omitzero"`
	SinceError string         `json:"since_error,omitempty"` // why the earlier run could not be read

	// Added is how many nodes were added before this one.
	Added int `json:"-"`
	// Causes are indices of Report.Causes.
	Causes []int `json:"-"`
}

// worse reports a difference from the node's earlier run for the worse, in the machine and not in the version.
func (n Node) worse() bool {
	return slices.ContainsFunc(n.Since, func(d result.Drift) bool { return d.Worse() && !d.AsksMore })
}

// Report says what the nodes have in common, and in what they differ.
type Report struct {
	Nodes  []Node   `json:"nodes"`          // the nodes, one for each file
	Causes []Cause  `json:"causes"`         // the reasons for which nodes are not good, those with the most nodes first
	Like   string   `json:"like"`           // the node that the others are compared with; "" if there is none
	Groups int      `json:"groups"`         // how many kinds of nodes there are
	Gone   []string `json:"gone,omitempty"` // the nodes that have an earlier run, with --since, and no run now

	most   bool // of the nodes are like that one
	larger bool // is a kind without a pair that counts
}

// Status returns the exit status of the report: 1 if a node fails, differs or has become worse, otherwise 3
// if something is unknown about a node or a node is gone, otherwise 0.
func (r Report) Status() int {
	status := result.StatusGood
	if len(r.Gone) > 0 {
		status = result.StatusUnknown
	}
	for _, n := range r.Nodes {
		switch {
		case n.Result == "fail" || n.worse() || slices.ContainsFunc(n.Differs, func(d result.Drift) bool { return !d.AsksMore }):
			return result.StatusBad
		case n.Result == "unknown" || n.SinceError != "":
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

// Merge merges the runs of nodes. Its zero value has no nodes. Only one goroutine may use a Merge at a time.
type Merge struct {
	// Observe, if not nil, is called by AddFrom for each node that it adds. at is the node's Node.Added. If the file
	// of an earlier node has the same bytes, run is nil, and same is the Added of that node; otherwise same is at. run
	// is valid during the call.
	Observe func(at int, run *result.Run, same int)

	pool
	nodes  []Node
	shapes []*shape // of the nodes; nil of one whose file cannot be read
	known  map[sum]*shape
	causes causes
	files  map[sum]earlier
	bases  map[sum][]named       // facts by what they are about
	pairs  map[sum]map[id]linked // by what they say
	had    [][]*Cause            // of the nodes
	since  since
}

// earlier is what was made of a file.
type earlier struct {
	node   int
	causes []*Cause
}

// AddFrom adds a node with the run that Read reads from r. It decodes equal files only once. If it returns an
// error, it has added no node: the caller then calls AddUnread.
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
		at := len(m.nodes)
		n.Added, n.Since, n.SinceError = at, nil, ""
		m.append(n, m.shapes[e.node], e.causes)
		for _, c := range e.causes {
			c.Nodes = append(c.Nodes, name)
		}
		if m.Observe != nil {
			m.Observe(at, nil, e.node)
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
	if m.Observe != nil {
		m.Observe(at, &run, at)
	}
	return nil
}

// Add adds a run that is in memory, without a call of Observe.
func (m *Merge) Add(name string, run result.Run) { m.add(terminal.Line(name), run) }

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
	n.Added = len(m.nodes)
	m.append(n, m.known[of], causes)
	return causes
}

func (m *Merge) append(n Node, s *shape, causes []*Cause) {
	m.differsSince(&n, s)
	m.nodes, m.shapes, m.had = append(m.nodes, n), append(m.shapes, s), append(m.had, causes)
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

// AddUnread adds a node whose run could not be read, with the reason. The node's result is unknown.
func (m *Merge) AddUnread(name string, why error) {
	n := Node{Node: terminal.Line(name), Result: "unknown", Failing: []string{}, Unknown: []string{}, Differs: []result.Drift{}, Error: terminal.Line(why.Error()), Added: len(m.nodes)}
	m.append(n, nil, nil)
}

// Read returns the number of nodes that have a run.
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

// Report returns the report. It compares the nodes with a node of the largest group of equal nodes; groups
// without a pair that counts come last, whatever their size. The caller may add more nodes, and call Report
// again.
func (m *Merge) Report() Report {
	r := Report{Nodes: append([]Node{}, m.nodes...), Causes: m.causes.list()}
	m.refer(&r)
	r.Gone = m.gone()
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
	rank := ranks()
	slices.SortStableFunc(r.Nodes, func(x, y Node) int {
		return cmp.Or(cmp.Compare(rank[x.Result], rank[y.Result]), cmp.Compare(len(y.Differs), len(x.Differs)), strings.Compare(x.Node, y.Node))
	})
	return r
}

// ranks orders results, the worst first.
func ranks() map[string]int {
	rank := map[string]int{}
	for i, name := range result.Ranks {
		rank[name] = i
	}
	return rank
}

// refer sorts the causes, and writes into the nodes which of them they have.
func (m *Merge) refer(r *Report) {
	rank, order := ranks(), slices.Clone(m.causes.all)
	slices.SortStableFunc(order, func(x, y *Cause) int {
		return cmp.Or(cmp.Compare(rank[x.Result], rank[y.Result]), cmp.Compare(len(y.Nodes), len(x.Nodes)))
	})
	at := map[*Cause]int{}
	for i, c := range order {
		r.Causes[i], at[c] = *c, i
	}
	same := map[**Cause][]int{} // nodes of equal files share their causes
	for i := range r.Nodes {
		had := m.had[i]
		if len(had) == 0 {
			continue
		}
		list, ok := same[&had[0]]
		if !ok {
			for _, c := range had {
				list = append(list, at[c])
			}
			slices.Sort(list)
			same[&had[0]] = list
		}
		r.Nodes[i].Causes = list
	}
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
