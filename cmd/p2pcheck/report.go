// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// node is one node of a report.
type node struct {
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

// cause is one reason for which nodes fail, or are unknown.
type cause struct {
	Result string      `json:"result"` // fail, unknown, or warn of a node that has nothing worse
	What   string      `json:"what"`   // a check's ID and title, or the outcome of pairs
	Nodes  []string    `json:"nodes"`
	Scope  []string    `json:"scope"` // on the first of them
	Why    []string    `json:"why"`
	Remedy *result.Fix `json:"remedy"`
}

type reportResult struct {
	Nodes  []node  `json:"nodes"`
	Causes []cause `json:"causes"` // those of most nodes first
	Like   string  `json:"like"`   // the node that the others are compared with
	Groups int     `json:"groups"`

	most   bool // of the nodes are like that one
	larger bool // is a kind without a pair that counts
}

func (r reportResult) status() int {
	status := cli.ExitOK
	for _, n := range r.Nodes {
		switch {
		case n.Result == "fail" || slices.ContainsFunc(n.Differs, func(d result.Drift) bool { return !d.AsksMore }):
			return cli.ExitFailed
		case n.Result == "unknown":
			status = cli.ExitUnavailable
		}
	}
	return status
}

func (a *app) report() *cobra.Command {
	return &cobra.Command{
		Use:   "report FILE|DIRECTORY...",
		Short: "Merge the runs of many nodes: which fail, which differ, and why",
		Long: `report reads files that p2pcheck --json wrote, one of each node and named after
it, or all .json files of a directory. Where names of files are the same, the
directories tell them apart. What most nodes have is taken for what is right, of
kinds that equally many have the best: the others differ from it. Nodes without a
pair that counts, as without a GPU, are not what is right while there are others.

Exit status: 0 all nodes are good and alike, 1 a node fails or differs, 2 no file
can be read, 3 of a node something is unknown, or its file cannot be read.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("FILE is missing: report reads what p2pcheck --json printed on each node")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			a.reached = true
			found, err := reported(args)
			if len(found.Nodes) == 0 {
				return a.end("report", nil, &cli.UsageError{Err: err})
			}
			return a.end("report", found, err)
		},
	}
}

// reported merges the files. A node whose file cannot be read is unknown, and the report still has all
// others. It fails if no file can be read.
func reported(args []string) (reportResult, error) {
	r := reportResult{Nodes: []node{}, Causes: []cause{}}
	files, err := filesOf(args)
	if err != nil {
		return r, err
	}
	var runs []result.Run
	var read []int // the nodes of runs
	var errs []error
	var nodes []node
	for i, name := range nodeNames(files) {
		run, err := readResult(files[i])
		if err != nil {
			errs = append(errs, &cli.Unavailable{Err: err})
			nodes = append(nodes, node{Node: name, Result: "unknown", Failing: []string{}, Unknown: []string{}, Differs: []result.Drift{}, Error: err.Error()})
			continue
		}
		runs, read = append(runs, run), append(read, i)
		nodes = append(nodes, nodeOf(name, run))
	}
	err = errors.Join(errs...)
	if len(runs) == 0 {
		return r, err
	}
	like, alike, largest := majority(runs)
	r.Nodes, r.Like = nodes, nodes[read[like]].Node
	kinds := map[string]bool{}
	for i, run := range runs {
		differs, _ := drifted(runs[like], run)
		r.Nodes[read[i]].Differs = differs
		kinds[fmt.Sprint(differs)] = true
		r.explain(nodes[read[i]].Node, run)
	}
	r.Groups = len(kinds)
	r.most, r.larger = 2*alike > len(runs), alike < largest
	slices.SortStableFunc(r.Causes, func(x, y cause) int {
		return cmp.Or(cmp.Compare(slices.Index(result.Ranks, x.Result), slices.Index(result.Ranks, y.Result)), cmp.Compare(len(y.Nodes), len(x.Nodes)))
	})
	slices.SortStableFunc(r.Nodes, func(x, y node) int {
		return cmp.Or(cmp.Compare(slices.Index(result.Ranks, x.Result), slices.Index(result.Ranks, y.Result)), cmp.Compare(len(y.Differs), len(x.Differs)), strings.Compare(x.Node, y.Node))
	})
	return r, err
}

func nodeOf(name string, run result.Run) node {
	n := node{Node: name, Result: result.Verdict(&run, run.Status()), Kernel: run.Machine.Kernel, GPUs: result.Counting(run.GPUs), NICs: len(run.NICs), Summary: run.Summary, Failing: []string{}, Unknown: []string{}}
	for _, f := range run.Checks {
		switch {
		case f.Result == "fail" && !slices.Contains(n.Failing, f.ID):
			n.Failing = append(n.Failing, f.ID)
		case f.Result == "unknown" && f.Decides && !slices.Contains(n.Unknown, f.ID):
			n.Unknown = append(n.Unknown, f.ID)
		}
	}
	return n
}

// explain adds the causes for which a node is not good: its errors, its pairs, then its checks.
func (r *reportResult) explain(name string, run result.Run) {
	if len(run.Said) > 0 {
		r.add(name, cause{Result: "unknown", What: "not all could be looked at", Why: run.Said})
	}
	if slices.ContainsFunc(run.Drift, result.Drift.Worse) {
		r.add(name, cause{Result: "fail", What: "worse than its baseline", Why: []string{"p2pcheck diff " + run.Baseline + " names them"}})
	}
	for _, p := range run.Pairs {
		if !p.Counts || p.Outcome == "direct" {
			continue
		}
		c := cause{Result: "fail", What: ofPairs + ": " + render.Heading(p), Scope: []string{p.GPU + " -> " + p.NIC}, Why: p.Why}
		if p.Outcome == "unknown" {
			c.Result = "unknown"
		}
		if p.Remedy != nil {
			c.Remedy = &result.Fix{Change: p.Remedy.Change, Command: p.Remedy.Command, Weakens: p.Remedy.Weakens}
		}
		r.add(name, c)
	}
	warned := result.Verdict(&run, run.Status()) == "warn" // by nothing else
	told := run.Told()
	for i, f := range run.Checks {
		if !told[i] && (f.Result == "fail" || f.Result == "unknown" && f.Decides || f.Result == "warn" && warned) {
			r.add(name, cause{Result: f.Result, What: f.ID + ": " + f.Title, Scope: f.Scope, Why: []string{f.Read}, Remedy: f.Remedy})
		}
	}
}

// add counts a node to a cause. Findings that differ only in the names of devices have one cause.
func (r *reportResult) add(name string, c cause) {
	i := slices.IndexFunc(r.Causes, func(x cause) bool {
		return x.What == c.What && x.Result == c.Result && slices.Equal(x.Why, c.Why) && (x.Remedy == nil) == (c.Remedy == nil) && (c.Remedy == nil || x.Remedy.Change == c.Remedy.Change)
	})
	if i < 0 {
		c.Nodes = []string{name}
		c.Scope, c.Why = result.List(slices.Clone(c.Scope)), result.List(c.Why)
		r.Causes = append(r.Causes, c)
		return
	}
	x := &r.Causes[i]
	if !slices.Contains(x.Nodes, name) {
		x.Nodes = append(x.Nodes, name)
	}
	if x.Nodes[0] != name {
		return
	}
	for _, s := range c.Scope {
		if !slices.Contains(x.Scope, s) {
			x.Scope = append(x.Scope, s)
		}
	}
}

// majority is the first node of the largest group of equal nodes. Of groups of the same size it takes the
// best, so that failing nodes are not the norm. A group without a pair comes last, whatever its size: nodes
// that lost their GPUs are no norm. majority also returns the size of that group and of the largest one.
func majority(runs []result.Run) (like, alike, largest int) {
	of := map[string][]int{}
	best := []int{}
	for i, run := range runs {
		f := factsOf(run)
		var key strings.Builder
		for _, name := range f.names {
			fmt.Fprintf(&key, "%s\x00%s\x00%s\n", name.What, name.Name, f.values[name].text)
		}
		of[key.String()] = append(of[key.String()], i)
	}
	for _, group := range of {
		largest = max(largest, len(group))
		if len(best) == 0 || cmp.Or(cmp.Compare(pairless(runs[group[0]]), pairless(runs[best[0]])), cmp.Compare(len(best), len(group)), byMerit(runs[group[0]], runs[best[0]]), cmp.Compare(group[0], best[0])) < 0 {
			best = group
		}
	}
	return best[0], len(best), largest
}

// pairless is 1 for a run without a pair that counts.
func pairless(r result.Run) int {
	if r.Summary.Total() == 0 {
		return 1
	}
	return 0
}

// byMerit orders runs, the better first.
func byMerit(x, y result.Run) int {
	rank := func(r result.Run) int { return slices.Index(result.Ranks, result.Verdict(&r, r.Status())) }
	return cmp.Or(cmp.Compare(rank(y), rank(x)), cmp.Compare(x.Tally.Fail, y.Tally.Fail), cmp.Compare(y.Summary.Direct, x.Summary.Direct))
}

// Limits of the text: --json has all.
const (
	shownDrift  = 5  // differences of a node
	shownNodes  = 16 // names in a line
	shownIDs    = 3  // checks of a node
	shownCauses = 10 // of one result
)

func (r reportResult) text(w io.Writer, a *app) error {
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
	if err := human.Table(w, rows); err != nil {
		return err
	}
	var b strings.Builder
	all, said := r.together(), map[result.Remedy]bool{}
	for _, rank := range result.Ranks {
		causesText(&b, a.style(), all, rank, said)
	}
	r.drifts(&b, a.style())
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
func (n node) row() []string {
	if n.Error != "" {
		return []string{n.Result, "?", "?", "?", "?", "", "its file cannot be read", "?"}
	}
	s := n.Summary
	return []string{
		n.Result, fmt.Sprintf("%d/%d", s.Direct, s.Total()), n.Kernel, fmt.Sprint(n.GPUs), fmt.Sprint(n.NICs),
		human.First(n.Failing, shownIDs), human.First(n.Unknown, shownIDs), fmt.Sprint(len(n.Differs)),
	}
}

// drifts writes the differences, once for all nodes that have the same ones.
func (r reportResult) drifts(b *strings.Builder, s render.Style) {
	var order [][]result.Drift
	nodes := map[string][]string{}
	for _, n := range r.Nodes {
		if len(n.Differs) == 0 {
			continue
		}
		key := fmt.Sprint(n.Differs)
		if nodes[key] == nil {
			order = append(order, n.Differs)
		}
		nodes[key] = append(nodes[key], n.Node)
	}
	for _, differs := range order {
		these := nodes[fmt.Sprint(differs)]
		verb := "differs"
		if len(these) > 1 {
			verb = "differ"
		}
		fmt.Fprintf(b, "\n%s\n", human.Fold(fmt.Sprintf("%s %s from %s", human.First(these, shownNodes), verb, r.Like), "", "    "))
		render.Drift(b, s, differs[:min(len(differs), shownDrift)])
		if more := len(differs) - shownDrift; more > 0 {
			fmt.Fprintf(b, "  and %d more\n", more)
		}
	}
}
