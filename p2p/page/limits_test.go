// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/topo"
)

// wide is a run with so many pairs, of which each says something of its own, n bytes long.
func wide(node, gpus, nics, n int) result.Run {
	var run result.Run
	for g := range gpus {
		for c := range nics {
			why := fmt.Sprintf("%d %d %d ", node, g, c) + strings.Repeat("x", n)
			run.Pairs = append(run.Pairs, result.Pair{GPU: fmt.Sprintf("g%d-%d", node, g), NIC: fmt.Sprintf("n%d-%d", node, c), Outcome: "lost", Counts: true, Why: []string{why}, Links: []result.Link{{Link: "library", State: "breaks", Why: []string{why}}}})
		}
	}
	run.Summary.Lost = gpus * nics
	return run
}

// A fleet of which each node says something else has a page that a browser can open, and says what it lacks.
func TestFullFleet(t *testing.T) {
	testenv.Exhaustive(t)
	for name, c := range map[string]struct {
		nodes, gpus, nics, bytes int
	}{
		"details": {600, 8, 8, 1000},
		"cells":   {100, 64, 64, 0},
		"texts":   {60, 8, 8, 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			seen := NewFleet()
			var merge fleet.Merge
			for i := range c.nodes {
				run := wide(i, c.gpus, c.nics, c.bytes)
				merge.AddUnread(fmt.Sprint("node", i), fmt.Errorf("not needed")) // the report itself is tested elsewhere
				run.Drift = []result.Drift{{What: "pair", Name: strings.Repeat("y", c.bytes) + fmt.Sprint(i), Change: "worse"}}
				run.Baseline = fmt.Sprint("baseline", i)
				seen.Observe(i, &run, i)
			}
			p := seen.Page(merge.Report())
			text := written(t, p)
			t.Logf("%d bytes, %d details, %d kinds", len(text), len(p.data.Details), len(p.data.Kinds))
			if most := 80 << 20; len(text) > most {
				t.Errorf("%d bytes", len(text))
			}
			if name != "texts" && !p.data.Left.Details && !p.data.Left.Cells {
				t.Error("the page does not say that it lacks something")
			}
			// Each node is still there, with its outcome.
			n := 0
			for _, r := range p.data.Rows {
				n += len(r.Nodes)
			}
			if n != c.nodes {
				t.Errorf("%d nodes", n)
			}
			for _, d := range p.data.Details {
				if d.Outcome != "lost" {
					t.Fatal(d.Outcome)
				}
			}
		})
	}
}

// A machine of more pairs than the page has room for shows those GPUs first that are not well.
func TestManyPairsOfAMachine(t *testing.T) {
	run := wide(0, 100, 60, 0)
	for i := range run.Pairs {
		if i/60 != 77 {
			run.Pairs[i].Outcome = "direct"
		}
	}
	for g := range 100 {
		run.GPUs = append(run.GPUs, result.GPU{Name: fmt.Sprintf("g0-%d", g), Counts: true})
	}
	run.Summary = result.Summary{Direct: 99 * 60, Lost: 60}
	var tree topo.Topology
	for range maxTree + 7 {
		tree.Functions = append(tree.Functions, topo.Function{})
	}
	run.Checks = make([]result.Finding, maxChecks+5)
	p := Machine("machine0", run, tree)
	d := p.data
	if d.Left.Pairs != 6000-66*60 || d.Left.Tree != 7 || d.Left.Checks != 5 {
		t.Errorf("%+v", d.Left)
	}
	lost := 0
	for _, c := range d.Kinds[d.Machine.Kind].Cells {
		if d.Details[c].Outcome == "lost" {
			lost++
		}
	}
	if lost != 60 {
		t.Errorf("%d lost pairs", lost)
	}
}

// Texts are cut between letters.
func TestClipped(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"short", "short"}, {"\xff", "\ufffd"},
		{strings.Repeat("ä", maxText), strings.Repeat("ä", maxText/2) + "…"},
		{"x" + strings.Repeat("ä", maxText), "x" + strings.Repeat("ä", maxText/2-1) + "…"},
	} {
		if got := clipped(c.in); got != c.want {
			t.Errorf("%.20q: %d bytes", c.in, len(got))
		}
	}
}
