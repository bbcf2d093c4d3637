// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// diffResult is the output of diff.
type diffResult struct {
	Before string         `json:"before"` // the file of the earlier run
	After  string         `json:"after"`  // the file of the later run
	Drift  []result.Drift `json:"drift"`  // what differs, the worst first
	// Uncompared is how many checks are not compared, because only one of the two runs has their
	// result.
	Uncompared int `json:"uncompared"`
}

func (r diffResult) status() int { return driftStatus(r.Drift) }

// driftStatus is 1 if something is worse, 3 if something is not known any more.
func driftStatus(all []result.Drift) int {
	switch {
	case slices.ContainsFunc(all, result.Drift.Worse):
		return cli.ExitFailed
	case slices.ContainsFunc(all, func(d result.Drift) bool { return d.Change == "unknown" }):
		return cli.ExitUnavailable
	}
	return cli.ExitOK
}

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
			differs, uncompared := fleet.Compare(before, after)
			return a.end("diff", diffResult{args[0], args[1], differs, uncompared}, nil)
		},
	}
}

func (r diffResult) text(w io.Writer, a *app) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", render.DriftHead(r.Drift))
	render.Drift(&b, a.style(), r.Drift)
	render.Uncompared(&b, a.style(), r.Uncompared)
	_, err := io.WriteString(w, b.String())
	return err
}
