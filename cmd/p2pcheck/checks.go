// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p"
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

func findingsOf(all []p2p.Finding) []finding {
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

func tallyOf(all []finding) tally {
	worst, hides := map[string]int{}, map[string]bool{}
	for _, f := range all {
		rank := slices.Index(ranks, f.Result)
		if was, ok := worst[f.ID]; !ok || rank < was {
			worst[f.ID] = rank
		}
		hides[f.ID] = hides[f.ID] || f.Result == "unknown" && f.Decides
	}
	var t tally
	for id, rank := range worst {
		*[]*int{&t.Fail, &t.Unknown, &t.Warn, &t.Pass, &t.Skip}[rank]++
		if hides[id] && ranks[rank] != "fail" {
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
		return cli.ExitFailed
	case t.Hidden > 0:
		return cli.ExitUnavailable
	}
	return cli.ExitOK
}

func (t tally) String() string {
	return fmt.Sprintf("%d checks: %d fail, %d unknown, %d warn, %d pass, %d do not apply", t.Fail+t.Unknown+t.Warn+t.Pass+t.Skip, t.Fail, t.Unknown, t.Warn, t.Pass, t.Skip)
}

var resultColors = map[string]string{"fail": "31", "unknown": "33", "warn": "33", "pass": "32"}

// checksText tells what the checks found: the worst first, what passes only if
// it is asked for.
func (r checkResult) checksText(b *strings.Builder, a *app) {
	for _, result := range ranks {
		for _, f := range r.Checks {
			quiet := f.told() || result == "pass" || result == "skip" || result == "unknown" && !f.Decides
			if f.Result == result && (a.verbose || !quiet) {
				f.text(b, a)
			}
		}
	}
}

// told reports a finding that the pairs' reasons have said before.
func (f finding) told() bool {
	return f.Result != "warn" && (f.ID == "P2P-VERDICT" || f.ID == "GPU-EXPORTER-OPS")
}

// tallyText counts what checksText has to tell.
func (r checkResult) tallyText(a *app) string {
	if a.verbose {
		return r.Tally.String()
	}
	untold := tallyOf(slices.DeleteFunc(slices.Clone(r.Checks), finding.told))
	text := r.Tally.String()
	if n := r.Tally.Fail - untold.Fail + r.Tally.Hidden - untold.Hidden; n > 0 {
		text += fmt.Sprintf("; %d of them told with the pairs", n)
	}
	if n := untold.Unknown - untold.Hidden; n > 0 {
		text += fmt.Sprintf("; %d of the unknown can only warn, and are not listed", n)
	}
	return text + "; -v shows all"
}

func (f finding) text(b *strings.Builder, a *app) {
	long := f.Result == "fail" || f.Result == "warn" || f.Result == "unknown"
	if long {
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "%s  %s: %s\n", a.paint(resultColors[f.Result], fmt.Sprintf("%-7s", strings.ToUpper(f.Result))), f.ID, f.Title)
	read := f.Read
	if s := scope(f.Scope, a.verbose); s != "" {
		read = s + ": " + read
	}
	fmt.Fprintf(b, "  %s\n", read)
	if !long {
		return
	}
	if f.Expected != "" {
		fmt.Fprintf(b, "  expected: %s\n", f.Expected)
	}
	if a.verbose && len(f.Where) > 0 {
		fmt.Fprintf(b, "  where: %s\n", strings.Join(f.Where, " "))
	}
	if f.Remedy != nil {
		(&remedy{Change: f.Remedy.Change, Command: f.Remedy.Command, Weakens: f.Remedy.Weakens}).text(b)
	}
}

// scope names the devices that a finding is about.
func scope(names []string, all bool) string {
	if len(names) > shownPairs && !all {
		return strings.Join(names[:shownPairs], ", ") + fmt.Sprintf(" and %d more", len(names)-shownPairs)
	}
	return strings.Join(names, ", ")
}
