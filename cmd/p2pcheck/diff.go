// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
)

// drift is one thing that was otherwise.
type drift struct {
	What   string `json:"what"` // "machine", "gpu", "nic", "pair", "proof", "check"
	Name   string `json:"name"`
	Before string `json:"before"` // "" if it was not there
	After  string `json:"after"`
	Change string `json:"change"` // one of changes
}

// changes are what a difference is, the worst first. One that is neither worse
// nor better (another kernel) decides nothing: what it leads to does.
var changes = []string{"worse", "unknown", "changed", "better"}

var changeColors = map[string]string{"worse": "31", "unknown": "33", "changed": "33", "better": "32"}

type diffResult struct {
	Before     string  `json:"before"`
	After      string  `json:"after"`
	Drift      []drift `json:"drift"`
	Uncompared int     `json:"uncompared"` // checks
}

func (r diffResult) status() int { return driftStatus(r.Drift) }

// driftStatus is 1 if something is worse, 3 if something is not known any more.
func driftStatus(all []drift) int {
	switch {
	case slices.ContainsFunc(all, drift.worse):
		return cli.ExitFailed
	case slices.ContainsFunc(all, func(d drift) bool { return d.Change == "unknown" }):
		return cli.ExitUnavailable
	}
	return cli.ExitOK
}

// worse reports a regression. Of an older p2pcheck nobody knows what a difference
// is.
func (d drift) worse() bool { return d.Change == "worse" || d.Change == "" }

func (a *app) diff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare two runs, of one node before and after or of two nodes",
		Long: `diff compares two files that p2pcheck --json wrote, and says of each difference
whether it is worse, better, unknown now, or neither. Checks that one of the two did
not carry out, or that do not apply to it, are not compared: run both as the same
user, with the same flags. One of the two may be -, the standard input.

Exit status: 0 nothing is worse, 1 something is, 2 a file cannot be read, 3 nothing is
worse and something is not known any more.`,
		Args: cli.Args("BEFORE", "AFTER"),
		RunE: func(_ *cobra.Command, args []string) error {
			a.reached = true
			if args[0] == standard && args[1] == standard {
				return a.end("diff", nil, &cli.UsageError{Err: errors.New("- is the standard input, and that is one file")})
			}
			before, err1 := readResult(args[0])
			after, err2 := readResult(args[1])
			if err := errors.Join(err1, err2); err != nil {
				return a.end("diff", nil, &cli.UsageError{Err: err})
			}
			differs, uncompared := drifted(before, after)
			return a.end("diff", diffResult{args[0], args[1], differs, uncompared}, nil)
		},
	}
}

func (r diffResult) text(w io.Writer, a *app) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", driftHead(r.Drift))
	driftText(&b, a.style(), r.Drift)
	uncomparedText(&b, r.Uncompared)
	_, err := io.WriteString(w, b.String())
	return err
}

// driftHead counts differences.
func driftHead(all []drift) string {
	var of []string
	for _, change := range changes {
		n := 0
		for _, d := range all {
			if d.Change == change {
				n++
			}
		}
		if n > 0 {
			of = append(of, fmt.Sprintf("%d %s", n, change))
		}
	}
	text := human.Plural(len(all), "difference")
	if len(of) > 0 {
		text += ": " + strings.Join(of, ", ")
	}
	return text
}

// uncomparedText says how much a comparison leaves out.
func uncomparedText(b *strings.Builder, n int) {
	if n > 0 {
		fmt.Fprintf(b, "  %s not compared: one of the two runs did not carry them out, or they do not apply to it\n", human.Plural(n, "check"))
	}
}

func driftText(b *strings.Builder, s style, all []drift) {
	for _, d := range all {
		fmt.Fprintf(b, "  %s  %s\n", s.paint(changeColors[d.Change], fmt.Sprintf("%-7s", d.Change)), d.difference())
	}
}

// difference says what differs, how it is, and how it was.
func (d drift) difference() string {
	there := func(value string) string { return cmp.Or(value, "not there") }
	return fmt.Sprintf("%s %s: %s, was %s", d.What, d.Name, there(d.After), there(d.Before))
}

// resultLimit is more than any run prints.
const resultLimit = 256 << 20

// badFile is of a file that is not what it was named as.
type badFile struct{ error }

func (b badFile) Unwrap() error { return b.error }

// readResult reads what check printed with --json.
func readResult(name string) (checkResult, error) {
	r, err := resultOf(name)
	if err != nil {
		return r, badFile{err}
	}
	return r, nil
}

func resultOf(name string) (checkResult, error) {
	var r checkResult
	f, err := openInput(name)
	if err != nil {
		return r, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, resultLimit))
	if err != nil {
		return r, err
	}
	var d struct {
		Schema  string
		Command string
		Status  int `json:"exit_status"`
		Result  *checkResult
		Errors  []cli.Error
	}
	err = json.Unmarshal(data, &d) // one document, and nothing behind it
	switch {
	case err != nil:
		return r, fmt.Errorf("%s is not what %s --json prints: %w", name, program, err)
	case d.Schema != schema || d.Command != "check":
		return r, fmt.Errorf("%s is not what %s --json prints: schema %q, command %q", name, program, d.Schema, d.Command)
	case d.Result == nil:
		return r, fmt.Errorf("%s is of a run that found nothing", name)
	}
	for _, p := range d.Result.Pairs {
		if !anOutcome(p.Outcome) {
			return r, fmt.Errorf("%s: a pair with the outcome %q", name, p.Outcome)
		}
		if p.Proof != nil && !anOutcome(p.Proof.Outcome) {
			return r, fmt.Errorf("%s: a proof with the outcome %q", name, p.Proof.Outcome)
		}
	}
	d.Result.Ran = d.Status
	for _, e := range d.Errors {
		d.Result.Said = append(d.Result.Said, e.Message)
	}
	return *d.Result, nil
}
