// SPDX-License-Identifier: Apache-2.0

package formats

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// headline says in one line what is wrong.
func headline(run Input) string {
	var parts []string
	r := run.Found
	if r == nil {
		r = &result.Run{}
	} else {
		if l := r.Live; l != nil && l.Contradicted > 0 {
			parts = append(parts, human.Plural(l.Contradicted, "prediction")+" contradicted")
		}
		parts = append(parts, r.Headline())
	}
	if n := worse(r.Drift); n > 0 {
		text := "worse than its baseline: " + r.Drift[0].Difference()
		if n > 1 {
			text += fmt.Sprintf(" and %d more", n-1)
		}
		parts = append(parts, text)
	}
	for _, rank := range []string{"fail", "unknown", "warn"} {
		if ids := namedBy(r.Checks, rank); len(ids) > 0 {
			parts = append(parts, rank+": "+strings.Join(ids, " "))
		}
	}
	if len(run.Errors) > 0 {
		parts = append(parts, run.Errors[0].Message)
	}
	return terminal.Escape(strings.NewReplacer("\n", " ", "\t", " ", "|", "/").Replace(strings.Join(parts, "; ")))
}

// worse counts the differences that are worse than the baseline.
func worse(all []result.Drift) int {
	return len(slices.DeleteFunc(slices.Clone(all), func(d result.Drift) bool { return !d.Worse() }))
}

// namedBy returns the checks whose worst result is rank, so that the line has each check once. It
// leaves out unknown checks that can only warn.
func namedBy(all []result.Finding, rank string) (ids []string) {
	worst, decides := result.Worst(all), map[string]bool{}
	for _, f := range all {
		decides[f.ID] = decides[f.ID] || f.Decides && f.Result == "unknown"
	}
	for _, id := range result.IDs(all) {
		if worst[id] == rank && (decides[id] || rank != "unknown") {
			ids = append(ids, id)
		}
	}
	return ids
}

// nagios writes one line with performance data. Its status is 0 for OK, 1 warning, 2 critical and
// 3 unknown.
func nagios(b *strings.Builder, run Input) int {
	r, v := run.Found, result.Verdict(run.Found, run.Status)
	code := slices.Index([]string{"pass", "warn", "fail", "unknown"}, v)
	fmt.Fprintf(b, "P2PCHECK %s - %s", []string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[code], headline(run))
	if r != nil {
		s, t := r.Summary, r.Tally
		unknown := len(namedBy(r.Checks, "unknown"))
		fmt.Fprintf(b, " | direct=%d staged=%d refused=%d lost=%d broken=%d unknown=%d checks_failed=%d checks_warned=%d checks_unknown=%d checks_unlisted=%d", s.Direct, s.Staged, s.Refused, s.Lost, s.Broken, s.Unknown, t.Fail, t.Warn, unknown, t.Unknown-unknown)
		if r.Baseline != "" {
			fmt.Fprintf(b, " worse=%d", worse(r.Drift))
		}
		if l := r.Live; l != nil {
			fmt.Fprintf(b, " proven_direct=%d proven_staged=%d proven_refused=%d proven_lost=%d unproven=%d contradicted=%d", l.Proven.Direct, l.Proven.Staged, l.Proven.Refused, l.Proven.Lost, l.Proven.Unknown, l.Contradicted)
		}
	}
	b.WriteString("\n")
	return code
}

// npdLength is the length of output that node-problem-detector keeps.
const npdLength = 80

// npd writes a line for a custom plugin of node-problem-detector. Its status is 0 for a good
// machine, 1 for a bad one and 2 for unknown.
func npd(b *strings.Builder, run Input) int {
	text := headline(run)
	if len(text) > npdLength {
		text = strings.ToValidUTF8(text[:npdLength-3], "") + "..."
	}
	fmt.Fprintln(b, text)
	switch result.Verdict(run.Found, run.Status) {
	case "pass", "warn":
		return 0
	case "fail":
		return 1
	}
	return 2
}
