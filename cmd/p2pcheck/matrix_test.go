// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// oneRedirects is a server of 8 GPUs and 8 NICs, one of whose four switches
// redirects.
func oneRedirects() testenv.Tree {
	tree := testenv.HGX()
	lines := strings.Split(tree.Functions, "\n")
	for i, line := range lines {
		if strings.Contains(line, "/0000:42:") {
			lines[i] = strings.Replace(line, "acs=0x00", "acs=0x1d", 1)
		}
	}
	tree.Functions = strings.Join(lines, "\n")
	return tree
}

// matrixOf are the lines of a report's matrix, with what stands below it.
func matrixOf(t *testing.T, text string) []string {
	t.Helper()
	_, text, _ = strings.Cut(text, "\n\n")
	text, _, ok := strings.Cut(text, "\n\n")
	if !ok || !strings.HasPrefix(text, "GPU") {
		t.Fatalf("no matrix: %q", text)
	}
	return strings.Split(text, "\n")
}

// A pair that is direct, and whose traffic a port sends over the root, does not look
// like the others.
func TestMatrixShowsWhatGoesOverTheRoot(t *testing.T) {
	r := run(oneRedirects(), t, "--root", "ROOT")
	lines := matrixOf(t, r.out)
	if last := lines[len(lines)-1]; last != render.SlowMark+" "+render.SlowLegend {
		t.Errorf("the last line is %q", last)
	}
	for _, line := range lines[1 : len(lines)-1] {
		want := 0
		if strings.HasPrefix(line, "43:00.0 ") || strings.HasPrefix(line, "45:00.0 ") {
			want = 2
		}
		if n := strings.Count(line, "direct^PIX"); n != want || strings.Count(line, "^") != want {
			t.Errorf("%d marks, want %d: %s", n, want, line)
		}
	}
	// In JSON it is the ports.
	var d struct{ Result result.Run }
	if err := json.Unmarshal([]byte(run(oneRedirects(), t, "--json", "--root", "ROOT").out), &d); err != nil {
		t.Fatal(err)
	}
	marked, costs := 0, 0
	for _, p := range d.Result.Pairs {
		if p.Counts && p.Outcome == "direct" && len(p.Decision.Redirects) > 0 {
			marked++
		}
		if p.Slow() && strings.Contains(strings.Join(p.Costs, "\n"), "a port redirects: the traffic goes to the root and back") {
			costs++
		}
	}
	if marked != 4 || costs != 4 {
		t.Errorf("%d pairs of the document go over the root, and %d say so as their cost, want 4", marked, costs)
	}
	// The drawing has the mark and what it means, too.
	if svg := run(oneRedirects(), t, "topo", "--svg", "--root", "ROOT").out; strings.Count(svg, ">direct^PIX</text>") != 4 || !strings.Contains(svg, ">"+render.SlowMark+" "+render.SlowLegend+"</text>") {
		t.Error(svg)
	}
}

// A pair that is not direct has its reasons and no mark, and so has one that no change makes faster.
func TestMatrixMarksNothingElse(t *testing.T) {
	for name, tree := range map[string]testenv.Tree{"good": testenv.HGX(), "staged": redirecting(), "server": machineTree(server+others, "0x1d")} {
		for _, args := range [][]string{{"--root", "ROOT"}, {"topo", "--svg", "--root", "ROOT"}} {
			if r := run(tree, t, args...); strings.Contains(r.out, "direct^") || strings.Contains(r.out, render.SlowLegend) {
				t.Errorf("%s: %s", name, r.out)
			}
		}
	}
}

// A matrix of eight GPUs and eight NICs fits into 100 columns and loses no value.
func TestMatrixFits(t *testing.T) {
	for name, tree := range map[string]testenv.Tree{"hgx": testenv.HGX(), "mi300": testenv.MI300(), "redirecting": redirecting(), "one redirects": oneRedirects()} {
		lines := matrixOf(t, run(tree, t, "--root", "ROOT").out)
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > 100 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		if f := strings.Fields(lines[0]); len(f) != 10 || f[1] != "nvidia" && f[1] != "amdgpu" {
			t.Errorf("%s: %s", name, lines[0])
		}
		// A GPU of another driver has its own beside it.
		if !strings.Contains(strings.Join(lines, "\n"), "\n10:1e.0 ast -") {
			t.Errorf("%s: %q", name, lines)
		}
	}
	// Where they have room they stand apart, under their whole names.
	if lines := matrixOf(t, run(testenv.Machines["small-hgx"](), t, "--root", "ROOT").out); !strings.HasPrefix(lines[1], "0000:13:00.0 nvidia  direct PIX  direct") {
		t.Errorf("%q", lines)
	}
}
