// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// firstRuns are what p2pcheck printed of three machines when the schema was p2pcheck/v1, with
// these checks left out.
const (
	firstRuns = "testdata/v1/"
	firstSkip = "KRN,ENV,ISO,PCIE,NIC,NET,LIM,CTR,K8S,VM,VF,LIB,ACT,AMD,INTEL"
)

// chained is a run with one pair of these links. The others hold.
func chained(links map[chain.Link]chain.Answer) result.Run {
	var c chain.Chain
	for l := chain.Library; l <= chain.Log; l++ {
		c[l] = chain.Hold("it holds")
	}
	c[chain.Proof] = chain.Open("it was not tried")
	for l, a := range links {
		c[l] = a
	}
	p := p2p.Pair{GPU: drivers.GPU{Name: "g", Exporter: drivers.Exporter{Class: drivers.ClassNVIDIA}}, NIC: drivers.NIC{Name: "n"}, Verdict: c.Conclude()}
	return result.Run{Schema: result.Schema, Pairs: []result.Pair{result.PairOf(p)}}
}

// first is a run of the first schema: its pairs have an outcome and no links.
func first(outcome string) result.Run {
	p := chained(nil).Pairs[0]
	p.Links, p.Outcome = nil, outcome
	return result.Run{Schema: result.SchemaV1, Pairs: []result.Pair{p}}
}

// A pair that is not known to be direct any more is worse if the link that decides could be
// read before. Otherwise it is neither worse nor better.
func TestDriftOfLinks(t *testing.T) {
	open := func(l chain.Link) map[chain.Link]chain.Answer {
		return map[chain.Link]chain.Answer{l: chain.Open("%v was not read", l)}
	}
	only := func(l chain.Link, a chain.Answer) map[chain.Link]chain.Answer {
		return map[chain.Link]chain.Answer{l: a}
	}
	proven := func(links map[chain.Link]chain.Answer) map[chain.Link]chain.Answer {
		links[chain.Proof] = chain.Hold("4096 bytes")
		return links
	}
	const (
		unknown = "not known to be direct any more: "
		asks    = " (this version asks more than p2pcheck/v1 did)"
	)
	direct, log := chained(nil), chain.Break(chain.OutcomeUnknown, "the IOMMU stopped it")
	for name, c := range map[string]struct {
		before, after result.Run
		change, says  string // "" of what does not differ
		asksMore      bool
	}{
		"v1 direct, unread":            {first("direct"), chained(open(chain.Library)), "unknown", unknown + "library: library was not read" + asks, true},
		"v1 direct, the log":           {first("direct"), chained(only(chain.Log, log)), "unknown", unknown + "log: the IOMMU stopped it" + asks, true},
		"v1 direct, staged":            {first("direct"), chained(only(chain.Decision, chain.Break(chain.Staged, "x"))), "worse", "staged", false},
		"v1 direct, refused":           {first("direct"), chained(only(chain.Route, chain.Refuse(0, chain.StageExport, "x"))), "worse", "refused", false},
		"v1 direct, lost":              {first("direct"), chained(only(chain.Fabric, chain.Break(chain.Lost, "x"))), "worse", "lost", false},
		"v1 direct, broken":            {first("direct"), chained(only(chain.Fabric, chain.Break(chain.Broken, "x"))), "worse", "broken", false},
		"v1 direct, direct":            {first("direct"), direct, "", "", false},
		"v1 unknown, direct":           {first("unknown"), direct, "better", "direct", true},
		"v1 unknown, refused":          {first("unknown"), chained(only(chain.Route, chain.Refuse(0, chain.StageExport, "x"))), "changed", "p2pcheck/v1 did not know it", true},
		"v1 staged, lost":              {first("staged"), chained(only(chain.Fabric, chain.Break(chain.Lost, "x"))), "changed", "lost", false},
		"v1 staged, unknown":           {first("staged"), chained(open(chain.Library)), "unknown", "unknown", true},
		"unknown, v1 direct":           {chained(open(chain.Library)), first("direct"), "changed", "p2pcheck/v1 asks less", true},
		"unknown, v1 staged":           {chained(open(chain.Library)), first("staged"), "changed", "p2pcheck/v1 asks less", true},
		"direct, v1 unknown":           {direct, first("unknown"), "unknown", "not known to be direct any more", true},
		"v1, v1":                       {first("direct"), first("unknown"), "unknown", "not known to be direct any more", false},
		"v1 unknown, v1 refused":       {first("unknown"), first("refused"), "worse", "refused", false},
		"read before":                  {direct, chained(open(chain.Fabric)), "worse", unknown + "fabric: fabric was not read", false},
		"cost before":                  {chained(only(chain.Fabric, chain.Cost("slow"))), chained(open(chain.Fabric)), "worse", unknown + "fabric", false},
		"not asked before":             {chained(only(chain.Library, chain.Skip(""))), chained(open(chain.Library)), "unknown", unknown + "library: library was not read", false},
		"the log was clear":            {direct, chained(only(chain.Log, log)), "worse", unknown + "log: the IOMMU stopped it", false},
		"the log was not read":         {chained(open(chain.Log)), chained(only(chain.Log, log)), "unknown", unknown + "log", false},
		"the log is not read any more": {direct, chained(open(chain.Log)), "", "", false},
		"known now":                    {chained(open(chain.Fabric)), direct, "better", "direct", false},
		"unknown by another link":      {chained(open(chain.Fabric)), chained(open(chain.Library)), "", "", false},
		"proven before, unread":        {chained(proven(open(chain.Fabric))), chained(open(chain.Fabric)), "", "", false},
		"proven before, unread anew":   {chained(proven(map[chain.Link]chain.Answer{})), chained(open(chain.Fabric)), "worse", unknown + "fabric", false},
		"proven now":                   {chained(open(chain.Fabric)), chained(proven(open(chain.Fabric))), "", "", false},
	} {
		all, _ := fleet.Compare(c.before, c.after)
		var d result.Drift
		if len(all) > 0 {
			d = all[0]
		}
		if len(all) > 1 || d.Change != c.change || !strings.Contains(d.After, c.says) || c.change == "unknown" && d.After == "" || d.AsksMore != c.asksMore {
			t.Errorf("%s: %+v, want %q, %q", name, all, c.change, c.says)
		}
	}
}

// A check that one of two versions does not know is no difference of the machines.
func TestDriftOfChecksOfTwoVersions(t *testing.T) {
	of := func(schema, got string) result.Run {
		return result.Run{Schema: schema, Checks: []result.Finding{{ID: "P2P-VERDICT", Result: got}}}
	}
	const v1, v2 = result.SchemaV1, result.Schema
	for _, c := range []struct {
		before, after result.Run
		change        string
		asksMore      bool
	}{
		{of(v1, "pass"), of(v2, "unknown"), "unknown", true}, {of(v1, "unknown"), of(v2, "fail"), "changed", true}, {of(v1, "unknown"), of(v2, "pass"), "better", true},
		{of(v1, "pass"), of(v2, "fail"), "worse", false}, {of(v2, "unknown"), of(v1, "pass"), "changed", true}, {of(v2, "pass"), of(v1, "unknown"), "unknown", true},
		{of(v2, "unknown"), of(v2, "fail"), "worse", false}, {of(v2, "unknown"), of("", "fail"), "worse", false}, {of(v1, "unknown"), of("", "fail"), "changed", true},
	} {
		if d, _ := fleet.Compare(c.before, c.after); len(d) != 1 || d[0].Change != c.change || d[0].AsksMore != c.asksMore {
			t.Errorf("%s after %s: %+v", c.after.Checks[0].Result, c.before.Checks[0].Result, d)
		}
	}
}

// Files of the first schema are read by --baseline, diff and report. A node whose pairs that
// version called direct, and of which this one has not read a link, is no worse than it was.
func TestBaselineOfTheFirstSchema(t *testing.T) {
	trees := map[string]testenv.Tree{"small-hgx": testenv.Machines["small-hgx"](), "flat-vm": testenv.FlatVM(), "bad": bad()}
	for name, c := range map[string]struct {
		before, after string
		baseline      int // the status of the run itself
		diff          int
		says          string
	}{
		"the same":               {"small-hgx", "small-hgx", cli.ExitOK, cli.ExitOK, "0 differences"},
		"a link was never read":  {"flat-vm", "flat-vm", cli.ExitUnavailable, cli.ExitUnavailable, "  unknown  pair 0000:00:03.0 -> mlx5_0: not known to be direct any more: library: "},
		"it was always so":       {"bad", "bad", cli.ExitFailed, cli.ExitOK, "refused, through the host bridge PIX (p2pcheck/v1 did not know it), was unknown"},
		"it is known to be less": {"small-hgx", "bad", cli.ExitFailed, cli.ExitFailed, "  worse    pair 0000:13:00.0 -> mlx5_0: refused, "},
		"it is mended":           {"bad", "small-hgx", cli.ExitOK, cli.ExitOK, "  better   pair 0000:13:00.0 -> mlx5_0: direct, bus address PIX, was unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			root, before := trees[c.after].Write(t), firstRuns+c.before+".json"
			after := filepath.Join(t.TempDir(), "after.json")
			command("--json", "-o", after, "--root", root, "--skip", firstSkip)
			for _, r := range []struct {
				status int
				outcome
			}{
				{c.baseline, command("--baseline", before, "--root", root, "--skip", firstSkip)},
				{c.diff, command("diff", before, after)},
			} {
				if r.outcome.status != r.status || r.err != "" || !strings.Contains(flat(r.out), flat(c.says)) || (r.status == cli.ExitFailed) != strings.Contains(r.out, "  worse  ") && name != "it was always so" {
					t.Errorf("status %d, want %d: %s%s", r.outcome.status, r.status, r.out, r.err)
				}
			}
			// The formats for Slurm and nagios report only differences for the worse.
			r := command("--baseline", before, "--root", root, "--skip", firstSkip, "--format", "nagios")
			if worse := strings.Contains(r.out, "worse than its baseline"); worse != (name == "it is known to be less") {
				t.Error(r.out)
			}
		})
	}
}

// Nodes that have the old version and nodes that have the new one are no two kinds of nodes.
func TestReportOfTwoVersions(t *testing.T) {
	dir := t.TempDir()
	for file, from := range map[string]string{"old0.json": "flat-vm", "old1.json": "flat-vm"} {
		text, err := os.ReadFile(firstRuns + from + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command("--json", "-o", filepath.Join(dir, "new.json"), "--root", testenv.FlatVM().Write(t), "--skip", firstSkip)
	report := func() (status int, differs int) {
		var d struct {
			Status int `json:"exit_status"`
			Result reportResult
		}
		if err := json.Unmarshal([]byte(command("report", "--json", dir).out), &d); err != nil {
			t.Fatal(err)
		}
		for _, n := range d.Result.Nodes {
			differs += len(n.Differs)
		}
		return d.Status, differs
	}
	if status, differs := report(); status != cli.ExitUnavailable || differs != 4 {
		t.Errorf("status %d, %d differences", status, differs)
	}
	// What differs beside that is a failure, as before.
	less := testenv.FlatVM()
	less.Functions = strings.Replace(less.Functions, " rdma:mlx5_1", "", 1)
	command("--json", "-o", filepath.Join(dir, "less.json"), "--root", less.Write(t), "--skip", firstSkip)
	if status, _ := report(); status != cli.ExitFailed {
		t.Errorf("status %d", status)
	}
}

// A run of this version says of each link what is known, and a file that lacks it is refused.
func TestLinksAreThere(t *testing.T) {
	file := saved(t, t.TempDir(), "good", testenv.Machines["small-hgx"]())
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Schema string
		Result result.Run
	}
	if err := json.Unmarshal(text, &d); err != nil || d.Schema != "p2pcheck/v2" {
		t.Fatal(d.Schema, err)
	}
	for _, p := range d.Result.Pairs {
		var names []string
		for _, l := range p.Links {
			names = append(names, l.Link)
			if l.State == "holds" && len(l.Evidence) == 0 && len(l.Why) == 0 {
				t.Errorf("%s -> %s: %s holds, and nothing says why", p.GPU, p.NIC, l.Link)
			}
		}
		if got := strings.Join(names, " "); got != "library route attach decision addresses fabric log proof" || p.Outcome != "direct" || p.Predicted != "direct" || p.Decides != "" {
			t.Errorf("%s: %+v", got, p)
		}
	}
	for from, to := range map[string]string{`"links": [`: `"lines": [`, `"schema": "p2pcheck/v2"`: `"schema": "p2pcheck/v3"`} {
		bad := filepath.Join(t.TempDir(), "bad.json")
		if err := os.WriteFile(bad, []byte(strings.ReplaceAll(string(text), from, to)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"diff", bad, file}, {"diff", file, bad}, {"report", bad}, {"--baseline", bad, "--root", t.TempDir()}} {
			if r := command(args...); r.status != cli.ExitUsage || cmp.Or(r.err, r.out) == "" {
				t.Errorf("%s, %q: %+v", to, args, r)
			}
		}
	}
}
