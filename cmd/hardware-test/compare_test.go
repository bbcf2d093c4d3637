// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/gpurdma/gpurdma/p2p/result"
)

// An answer is compared only where there is a prediction, and a prediction only where there is an
// answer.
func TestCompareAnswer(t *testing.T) {
	for _, c := range []struct{ predicted, answered, want string }{
		{yes, yes, agrees}, {no, no, agrees}, {yes, no, disagrees}, {no, yes, disagrees},
		{"", yes, notPredicted}, {"", no, notPredicted}, {yes, "", notAnswered}, {"", "", notAnswered},
	} {
		if got := compareAnswer(c.predicted, c.answered); got != c.want {
			t.Errorf("predicted %q, answered %q: %s, want %s", c.predicted, c.answered, got, c.want)
		}
	}
}

func TestCompareOutcome(t *testing.T) {
	eperm, enotsupp := &result.Errno{Name: "EPERM", Number: 1}, &result.Errno{Name: "ENOTSUPP", Number: 524}
	for _, c := range []struct {
		predicted string
		by        *result.Errno
		outcome   string
		errno     *result.Errno
		want      string
	}{
		{predicted: "direct", outcome: "direct", want: agrees},
		{predicted: "direct", outcome: "staged", want: disagrees},
		{predicted: "direct", outcome: "refused", want: disagrees},
		{predicted: "direct", outcome: notDirect, want: disagrees},
		{predicted: "direct", outcome: arrived, want: fits},
		{predicted: "staged", outcome: arrived, want: fits},
		{predicted: "refused", outcome: arrived, want: disagrees},
		{predicted: "lost", outcome: arrived, want: disagrees},
		{predicted: "lost", outcome: notDirect, want: agrees},
		{predicted: "broken", outcome: "refused", want: agrees},
		{predicted: "broken", outcome: "direct", want: disagrees},
		{predicted: "staged", outcome: "refused", want: disagrees},
		{predicted: "refused", by: enotsupp, outcome: "refused", errno: enotsupp, want: agrees},
		{predicted: "refused", by: enotsupp, outcome: "refused", errno: eperm, want: disagrees},
		{predicted: "refused", outcome: "refused", errno: eperm, want: agrees},
		{predicted: "unknown", outcome: "direct", want: notPredicted},
		{predicted: "direct", outcome: "", want: notAnswered},
	} {
		if got := compareOutcome(result.Pair{Predicted: c.predicted, Errno: c.by}, observed{outcome: c.outcome, errno: c.errno}); got != c.want {
			t.Errorf("predicted %s, observed %q: %s, want %s", c.predicted, c.outcome, got, c.want)
		}
	}
}

// A label is what was seen: bytes that arrived without a trace are no proof of their place, and a
// registration without a transfer is none that bytes arrive.
func TestObserve(t *testing.T) {
	proof := func(outcome, write, read string) *result.Proof {
		return &result.Proof{Outcome: outcome, Why: "a reason", Steps: []result.Step{{Step: "written", Result: write, Detail: "w"}, {Step: "read", Result: read, Detail: "r"}}}
	}
	for _, c := range []struct {
		proof     *result.Proof
		want, why string
	}{
		{nil, "", "it was not tried"},
		{proof("direct", "pass", "pass"), "direct", "a reason"},
		{proof("direct", "skip", "skip"), "", "no bytes were moved: a reason"},
		{proof("direct", "fail", "skip"), "lost", "written: w"},
		{proof("direct", "pass", "fail"), "lost", "read: r"},
		{proof("staged", "pass", "pass"), "staged", "a reason"},
		{proof("refused", "skip", "skip"), "refused", "a reason"},
		{proof("unknown", "pass", "pass"), arrived, "a reason"},
		{proof("unknown", "pass", "fail"), notDirect, "read: r"},
		{proof("unknown", "skip", "skip"), "", "a reason"},
	} {
		if o := observe(result.Pair{Proof: c.proof}); o.outcome != c.want || o.why != c.why {
			t.Errorf("%+v: %q: %s, want %q: %s", c.proof, o.outcome, o.why, c.want, c.why)
		}
	}
}

// A run in which nothing was compared did not pass.
func TestConclude(t *testing.T) {
	for _, c := range []struct {
		rows  []string
		tests []testRun
		want  string
	}{
		{want: resultNothing},
		{rows: []string{notAnswered, notPredicted}, want: resultNothing},
		{rows: []string{agrees, notAnswered}, want: resultAgrees},
		{rows: []string{fits}, want: resultAgrees},
		{rows: []string{agrees, disagrees}, want: resultDisagrees},
		{rows: []string{agrees}, tests: []testRun{{Passed: 1, Failed: []string{"TestX"}}}, want: resultTests},
		{tests: []testRun{{Error: "it took longer"}}, want: resultTests},
		{rows: []string{agrees}, tests: []testRun{{Passed: 1}}, want: resultAgrees},
	} {
		r := report{Tests: c.tests}
		for _, compared := range c.rows {
			r.Rows = append(r.Rows, row{Compared: compared})
		}
		if r.conclude(); r.Result != c.want {
			t.Errorf("%v, %v: %s, want %s", c.rows, c.tests, r.Result, c.want)
		}
	}
}
