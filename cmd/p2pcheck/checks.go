// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/p2p/check"
)

// fix is the remedy of a check.
type fix struct {
	Change  string `json:"change"`
	Command string `json:"command,omitempty"`
	Weakens string `json:"weakens,omitempty"`
}

// finding is what one check found.
type finding struct {
	ID       string   `json:"id"`
	Result   string   `json:"result"`
	Title    string   `json:"title"`
	Scope    []string `json:"scope"`
	Read     string   `json:"read"`
	Where    []string `json:"where"`
	Expected string   `json:"expected"`
	Decides  bool     `json:"decides"`
	Remedy   *fix     `json:"remedy"`
	Ref      string   `json:"ref"`
}

// tally counts checks by the worst that each found.
type tally struct {
	Fail    int `json:"fail"`
	Unknown int `json:"unknown"`
	Warn    int `json:"warn"`
	Pass    int `json:"pass"`
	Skip    int `json:"skip"`
	Hidden  int `json:"hidden"` // of the unknown ones, those that may hide a failure
}

// ranks are the results, the worst first.
var ranks = []string{"fail", "unknown", "warn", "pass", "skip"}

func findingsOf(all []check.Finding) []finding {
	out := []finding{}
	for _, f := range all {
		g := finding{
			ID: f.Check.ID, Result: f.Result.String(), Title: f.Check.Title, Scope: list(f.Scope), Read: f.Read,
			Where: list(f.Where), Expected: f.Expect, Decides: f.Decides(), Ref: f.Check.Ref,
		}
		if r := f.Remedy; r != nil {
			g.Remedy = &fix{r.Change, r.Command, r.Weakens}
		}
		out = append(out, g)
	}
	return out
}

// worstOf is the worst that each check found.
func worstOf(all []finding) map[string]string {
	worst := map[string]string{}
	for _, f := range all {
		if was, ok := worst[f.ID]; !ok || slices.Index(ranks, f.Result) < slices.Index(ranks, was) {
			worst[f.ID] = f.Result
		}
	}
	return worst
}

// idsOf are the checks that found something, each once.
func idsOf(all []finding) (ids []string) {
	seen := map[string]bool{}
	for _, f := range all {
		if !seen[f.ID] {
			ids = append(ids, f.ID)
		}
		seen[f.ID] = true
	}
	return ids
}

func tallyOf(all []finding) tally {
	hides := map[string]bool{}
	for _, f := range all {
		hides[f.ID] = hides[f.ID] || f.Result == "unknown" && f.Decides
	}
	var t tally
	for id, worst := range worstOf(all) {
		*[]*int{&t.Fail, &t.Unknown, &t.Warn, &t.Pass, &t.Skip}[slices.Index(ranks, worst)]++
		if hides[id] && worst != "fail" {
			t.Hidden++
		}
	}
	return t
}

// status is what the checks say of the machine. What only ever warns decides
// nothing.
func (t tally) status() int {
	switch {
	case t.Fail > 0:
		return statusBad
	case t.Hidden > 0:
		return statusUnknown
	}
	return statusGood
}

func (t tally) String() string {
	return fmt.Sprintf("%d checks: %d fail, %d unknown, %d warn, %d pass, %d do not apply", t.Fail+t.Unknown+t.Warn+t.Pass+t.Skip, t.Fail, t.Unknown, t.Warn, t.Pass, t.Skip)
}

var resultColors = map[string]string{"fail": "31", "unknown": "33", "warn": "33", "pass": "32"}

// checksText tells what the checks found: the worst first, what passes only if
// it is asked for.
func checksText(b *strings.Builder, s style, r checkResult, told map[remedy]bool) {
	for _, rank := range ranks {
		var blocks [][]finding
		for _, f := range r.Checks {
			quiet := r.told(f) || rank == "pass" || rank == "skip" || rank == "unknown" && !f.Decides
			if !s.verbose {
				f, quiet = withTwin(r.Checks, f, quiet)
			}
			if f.Result != rank || quiet && !s.verbose {
				continue
			}
			i := slices.IndexFunc(blocks, func(block []finding) bool { return block[0].like(f) })
			if i < 0 || s.verbose {
				i, blocks = len(blocks), append(blocks, nil)
			}
			blocks[i] = added(blocks[i], f)
		}
		for _, block := range blocks {
			findingsText(b, s, block, told)
		}
	}
}

// twins are checks that look at one thing in two ways: NUMA nodes alone, and
// bridges and nodes.
var twins = [2]string{"P2P-DIST", "PCIE-NUMA"}

// withTwin tells findings of twins on the same devices once, under both IDs.
func withTwin(all []finding, f finding, quiet bool) (finding, bool) {
	i := slices.Index(twins[:], f.ID)
	if i < 0 || !slices.ContainsFunc(all, func(g finding) bool {
		return g.ID == twins[1-i] && g.Result == f.Result && slices.Equal(g.Scope, f.Scope)
	}) {
		return f, quiet
	}
	f.ID = strings.Join(twins[:], ", ")
	return f, quiet || i == 1
}

// ofPairs reports a finding that pairs' reasons say, too.
func (f finding) ofPairs() bool {
	return f.Result != "warn" && (f.ID == "P2P-VERDICT" || f.ID == "GPU-EXPORTER-OPS")
}

// tallyText counts what checksText has to tell.
func tallyText(r checkResult, verbose bool) string {
	text := r.Tally.String()
	if r.Summary.all() == 0 {
		text += "; " + noPair(r)
	}
	if verbose {
		return text
	}
	untold := tallyOf(slices.DeleteFunc(slices.Clone(r.Checks), r.told))
	if n := r.Tally.Fail - untold.Fail + r.Tally.Hidden - untold.Hidden; n > 0 {
		text += fmt.Sprintf("; %d of them told with the pairs", n)
	}
	if n := untold.Unknown - untold.Hidden; n > 0 {
		are := "are"
		if n == 1 {
			are = "is"
		}
		text += fmt.Sprintf("; %d of the unknown can only warn, and %s not listed", n, are)
	}
	return text + "; -v shows all"
}

// like reports a finding of the same check with the same remedy.
func (f finding) like(g finding) bool {
	return f.ID == g.ID && f.Result == g.Result && f.Expected == g.Expected && f.Remedy.like(g.Remedy)
}

// like reports the same remedy: one whose command names a GPU or a pair to look at
// is the same for others.
func (x *fix) like(y *fix) bool {
	if x == nil || y == nil {
		return x == y
	}
	a, b := *x, *y
	a.Command, b.Command = ofAnyDevice(a.Command), ofAnyDevice(b.Command)
	return a == b
}

// ofAnyDevice is a command of ours without the devices behind it.
func ofAnyDevice(command string) string {
	command, _, _ = strings.Cut(command, " --gpu ")
	command, _, _ = strings.Cut(command, " --nic ")
	return command
}

// added puts a finding into a block: the devices of which the same was read stand in
// one line.
func added(block []finding, f finding) []finding {
	i := slices.IndexFunc(block, func(g finding) bool { return g.Read == f.Read && len(g.Scope) > 0 && len(f.Scope) > 0 })
	if i < 0 {
		return append(block, f)
	}
	block[i].Scope = slices.Concat(block[i].Scope, f.Scope)
	return block
}

// findingLine is what was read, and of what.
func findingLine(f finding, all bool) string {
	if of := scope(f.Scope, all); of != "" {
		return of + ": " + f.Read
	}
	return f.Read
}

// findingsText tells findings that are like one another. Of those whose reading
// differs in places only the first few are told.
func findingsText(b *strings.Builder, s style, block []finding, told map[remedy]bool) {
	f := block[0]
	long := f.Result == "fail" || f.Result == "warn" || f.Result == "unknown"
	if long {
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "%s  %s: %s\n", s.paint(resultColors[f.Result], fmt.Sprintf("%-7s", strings.ToUpper(f.Result))), f.ID, f.Title)
	kinds := map[string]int{}
	more := 0
	for _, g := range block {
		if kinds[kindOf(g.Read)]++; kinds[kindOf(g.Read)] > shownPairs && !s.verbose {
			more++
			continue
		}
		fmt.Fprintf(b, "  %s\n", findingLine(g, s.verbose))
	}
	if more > 0 {
		fmt.Fprintf(b, "  and %d more like that; -v has all\n", more)
	}
	if !long {
		return
	}
	if f.Expected != "" {
		fmt.Fprintf(b, "  expected: %s\n", f.Expected)
	}
	if s.verbose && len(f.Where) > 0 {
		fmt.Fprintf(b, "  where: %s\n", strings.Join(f.Where, " "))
	}
	if f.Remedy != nil {
		remedyText(b, &remedy{Change: f.Remedy.Change, Command: f.Remedy.Command, Weakens: f.Remedy.Weakens}, told)
	}
}

// scope names the devices that a finding is about.
func scope(names []string, all bool) string {
	if len(names) > shownPairs && !all {
		return strings.Join(names[:shownPairs], ", ") + fmt.Sprintf(" and %d more", len(names)-shownPairs)
	}
	return strings.Join(names, ", ")
}
