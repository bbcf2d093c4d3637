// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// node is one node of a report.
type node struct {
	Node    string   `json:"node"`
	Result  string   `json:"result"` // pass, warn, fail, unknown
	Kernel  string   `json:"kernel"`
	GPUs    int      `json:"gpus"`
	NICs    int      `json:"nics"`
	Summary summary  `json:"summary"`
	Failing []string `json:"failing"` // checks
	Unknown []string `json:"unknown"` // those that may hide a failure
	Differs []drift  `json:"differs"` // from what most nodes have
}

type reportResult struct {
	Nodes  []node `json:"nodes"`
	Like   string `json:"like"` // the node that the others are compared with
	Groups int    `json:"groups"`
}

func (r reportResult) status() int {
	status := cli.ExitOK
	for _, n := range r.Nodes {
		switch {
		case n.Result == "fail" || len(n.Differs) > 0:
			return cli.ExitFailed
		case n.Result == "unknown":
			status = cli.ExitUnavailable
		}
	}
	return status
}

func (a *app) report() *cobra.Command {
	return &cobra.Command{
		Use:   "report FILE...",
		Short: "Merge the runs of many nodes: which fail, which differ, and why",
		Long: `report reads files that p2pcheck --json wrote, one of each node and named after
it. What most nodes have is taken for what is right: the others differ from it.

Exit status: 0 all nodes are good and alike, 1 a node fails or differs, 2 a file
cannot be read, 3 of a node something is unknown.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			a.reached = true
			found, err := reported(args)
			if err != nil {
				return a.end("report", nil, &cli.UsageError{Err: err})
			}
			return a.end("report", found, nil)
		},
	}
}

func reported(files []string) (reportResult, error) {
	var runs []checkResult
	var errs []error
	r := reportResult{Nodes: []node{}}
	for _, file := range files {
		run, err := readResult(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		runs = append(runs, run)
		r.Nodes = append(r.Nodes, nodeOf(strings.TrimSuffix(filepath.Base(file), ".json"), run))
	}
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	like := r.majority(runs)
	r.Like = r.Nodes[like].Node
	for i := range r.Nodes {
		r.Nodes[i].Differs = drifted(runs[like], runs[i])
	}
	slices.SortStableFunc(r.Nodes, func(x, y node) int {
		return cmp.Or(cmp.Compare(slices.Index(ranks, x.Result), slices.Index(ranks, y.Result)), cmp.Compare(len(y.Differs), len(x.Differs)), strings.Compare(x.Node, y.Node))
	})
	return r, nil
}

func nodeOf(name string, run checkResult) node {
	n := node{Node: name, Result: verdict(&run, run.status()), Kernel: run.Machine.Kernel, GPUs: len(run.GPUs), NICs: len(run.NICs), Summary: run.Summary, Failing: []string{}, Unknown: []string{}}
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

// majority is the first node of the largest group of nodes that are all alike.
func (r *reportResult) majority(runs []checkResult) int {
	groups := map[string][]int{}
	best := []int{}
	for i, run := range runs {
		f := factsOf(run)
		var key strings.Builder
		for _, name := range f.names {
			fmt.Fprintf(&key, "%s\x00%s\x00%s\n", name.What, name.Name, f.values[name])
		}
		group := append(groups[key.String()], i)
		groups[key.String()] = group
		if len(group) > len(best) {
			best = group
		}
	}
	r.Groups = len(groups)
	return best[0]
}

// shownDrift is of how many differences of a node a report tells.
const shownDrift = 5

func (r reportResult) text(w io.Writer, a *app) error {
	rows := [][]string{{"NODE", "RESULT", "DIRECT", "KERNEL", "GPUS", "NICS", "FAILING", "UNKNOWN", "DIFFERS"}}
	for _, n := range r.Nodes {
		s := n.Summary
		rows = append(rows, []string{
			n.Node, n.Result, fmt.Sprintf("%d/%d", s.Direct, s.Direct+s.Staged+s.Refused+s.Unknown), n.Kernel, fmt.Sprint(n.GPUs), fmt.Sprint(n.NICs),
			strings.Join(n.Failing, " "), strings.Join(n.Unknown, " "), fmt.Sprint(len(n.Differs)),
		})
	}
	if err := cli.Table(w, rows); err != nil {
		return err
	}
	var b strings.Builder
	for _, n := range r.Nodes {
		if len(n.Differs) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s differs from %s\n", n.Node, r.Like)
		driftText(&b, a, n.Differs[:min(len(n.Differs), shownDrift)])
		if more := len(n.Differs) - shownDrift; more > 0 {
			fmt.Fprintf(&b, "  and %d more\n", more)
		}
	}
	fmt.Fprintf(&b, "\n%s, %s of them\n", plural(len(r.Nodes), "node"), plural(r.Groups, "kind"))
	_, err := io.WriteString(w, b.String())
	return err
}
