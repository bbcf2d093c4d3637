// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p"
)

// drift is one thing that was otherwise.
type drift struct {
	What   string `json:"what"` // "machine", "gpu", "nic", "pair", "proof", "check"
	Name   string `json:"name"`
	Before string `json:"before"` // "" if it was not there
	After  string `json:"after"`
}

type diffResult struct {
	Before string  `json:"before"`
	After  string  `json:"after"`
	Drift  []drift `json:"drift"`
}

func (r diffResult) status() int {
	if len(r.Drift) > 0 {
		return cli.ExitFailed
	}
	return cli.ExitOK
}

func (a *app) diff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare two runs, of one node before and after or of two nodes",
		Long: `diff compares two files that p2pcheck --json wrote.

Exit status: 0 nothing differs, 1 something does, 2 a file cannot be read.`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			a.reached = true
			before, err1 := readResult(args[0])
			after, err2 := readResult(args[1])
			if err := errors.Join(err1, err2); err != nil {
				return a.end("diff", nil, &cli.UsageError{Err: err})
			}
			return a.end("diff", diffResult{args[0], args[1], drifted(before, after)}, nil)
		},
	}
}

func (r diffResult) text(w io.Writer, a *app) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", plural(len(r.Drift), "difference"))
	driftText(&b, a, r.Drift)
	_, err := io.WriteString(w, b.String())
	return err
}

func driftText(b *strings.Builder, a *app, all []drift) {
	shown := func(s string) string {
		if s == "" {
			return "not there"
		}
		return s
	}
	for _, d := range all {
		fmt.Fprintf(b, "  %s %s: %s, was %s\n", d.What, d.Name, a.paint("31", shown(d.After)), shown(d.Before))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// resultLimit is more than any run prints.
const resultLimit = 256 << 20

// readResult reads what check printed with --json.
func readResult(name string) (checkResult, error) {
	var r checkResult
	f, err := os.Open(name)
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
	err = json.NewDecoder(bytes.NewReader(data)).Decode(&d)
	switch {
	case err != nil:
		return r, fmt.Errorf("%s is not what %s --json prints: %w", name, program, err)
	case d.Schema != schema || d.Command != "check":
		return r, fmt.Errorf("%s is not what %s --json prints: schema %q, command %q", name, program, d.Schema, d.Command)
	case d.Result == nil:
		return r, fmt.Errorf("%s is of a run that found nothing", name)
	}
	for _, p := range d.Result.Pairs {
		if !slices.ContainsFunc(looks, func(l look) bool { return l.outcome.String() == p.Outcome }) {
			return r, fmt.Errorf("%s: a pair with the outcome %q", name, p.Outcome)
		}
		if p.Proof != nil && !slices.ContainsFunc(looks, func(l look) bool { return l.outcome.String() == p.Proof.Outcome }) {
			return r, fmt.Errorf("%s: a proof with the outcome %q", name, p.Proof.Outcome)
		}
	}
	d.Result.ran = d.Status
	for _, e := range d.Errors {
		d.Result.said = append(d.Result.said, e.Message)
	}
	return *d.Result, nil
}

// facts are what a run says, each under a name, in order.
type facts struct {
	names  []drift // of what, and its name
	values map[drift]string
}

func (f *facts) add(what, name, value string) {
	key := drift{What: what, Name: name}
	if _, ok := f.values[key]; !ok {
		f.names = append(f.names, key)
	}
	f.values[key] = value
}

func factsOf(r checkResult) *facts {
	f := &facts{values: map[drift]string{}}
	f.add("machine", "kernel", r.Machine.Kernel)
	f.add("machine", "CONFIG_PCI_P2PDMA", r.Machine.P2PDMA.String())
	f.add("machine", "processor", r.Machine.CPU)
	for _, g := range r.GPUs {
		f.add("gpu", g.Name, fmt.Sprintf("%s (%s)", g.Driver, g.Exporter))
	}
	for _, n := range r.NICs {
		at := "no PCI function"
		if n.PCI != nil {
			at = n.PCI.String()
		}
		f.add("nic", n.Name, fmt.Sprintf("%s at %s (%s)", n.Driver, at, n.Importer))
	}
	for _, p := range r.Pairs {
		value := p.Outcome
		if p.Errno != nil {
			value += " with " + p.Errno.Name
		}
		f.add("pair", p.GPU+" -> "+p.NIC, strings.TrimSpace(value+", "+p.Decision.Type+" "+p.NCCL))
	}
	for _, c := range r.Checks {
		if p2p.OfProof(c.ID) {
			continue // with others that were proven
		}
		f.check(c)
	}
	return f
}

// prove adds what was proven.
func (f *facts) prove(r checkResult) {
	for _, p := range r.Pairs {
		if p.Proof != nil {
			f.add("proof", p.GPU+" -> "+p.NIC, p.Proof.Outcome)
		}
	}
	for _, c := range r.Checks {
		if p2p.OfProof(c.ID) {
			f.check(c)
		}
	}
}

// check adds a finding.
func (f *facts) check(c finding) {
	scope := c.Scope
	if len(scope) == 0 {
		scope = []string{""}
	}
	for _, s := range scope {
		name := strings.TrimSpace(c.ID + " " + s)
		// Of several findings on one thing the worst counts.
		if was, ok := f.values[drift{What: "check", Name: name}]; ok && slices.Index(ranks, was) < slices.Index(ranks, c.Result) {
			continue
		}
		f.add("check", name, c.Result)
	}
}

// drifted lists what differs.
func drifted(before, after checkResult) []drift {
	out := []drift{}
	was, is := factsOf(before), factsOf(after)
	if before.Live != nil && after.Live != nil {
		was.prove(before)
		is.prove(after)
	}
	for _, key := range is.names {
		if was.values[key] != is.values[key] {
			out = append(out, drift{key.What, key.Name, was.values[key], is.values[key]})
		}
	}
	for _, key := range was.names {
		if _, ok := is.values[key]; !ok {
			out = append(out, drift{key.What, key.Name, was.values[key], ""})
		}
	}
	return out
}
