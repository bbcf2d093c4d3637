// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/check"
	"github.com/gpurdma/gpurdma/p2p/checks"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// check predicts the outcome for all pairs, proves it with --live, and runs the checks.
func (a *app) check(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC) (output, error) {
	if !a.proving {
		return a.checkAnd(nil, m, gpus, nics)
	}
	return a.checkAnd(a.prove, m, gpus, nics)
}

func (a *app) checkAnd(prove func(*machine.Machine, []p2p.Pair) (*result.Live, error), m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC) (output, error) {
	pairs, missing, err := a.judge(m, gpus, nics)
	if err != nil {
		return nil, err
	}
	var live *result.Live
	var unproven error
	if prove != nil {
		live, unproven = prove(m, pairs)
	}
	p2p.Combine(m, pairs)
	r := result.New(m, gpus, nics, pairs)
	r.Machine.Notes, r.Unread = a.notes, a.unread
	if live != nil {
		r.AddProofs(live)
	}
	subject := check.Subject{GPUs: gpus, NICs: nics, Pairs: pairs, Skip: a.skip, Spec: a.spec, Wanted: a.wanted}
	if subject.Containers, err = a.containers(); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	if here(a.source) {
		subject.Live = a.live
	}
	findings := checks.Run(m, subject)
	r.AddFindings(findings)
	if a.baseline != "" {
		before, err := readResult(a.baseline)
		if err != nil {
			return nil, &cli.UsageError{Err: fmt.Errorf("--baseline: %w", err)}
		}
		r.Baseline = a.baseline
		r.Drift, r.Uncompared = fleet.Compare(before, r)
	}
	if a.html != "" {
		a.page = a.machinePage(m, gpus, nics, r)
	}
	return checkOutput(r), errors.Join(a.nothing(m, gpus, nics), missing, unproven, a.notJudged(subject, findings))
}

// nothing is the error of a machine that lacks GPUs or NICs. Where devices could not be read it is not
// known to lack any.
func (a *app) nothing(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC) error {
	if len(a.unread) > 0 {
		return nil
	}
	var errs []error
	for _, what := range result.Missing(m, gpus, nics) {
		errs = append(errs, &cli.Unavailable{Err: errors.New(what)})
	}
	return errors.Join(errs...)
}

// checkOutput is what check prints.
type checkOutput result.Run

func (c checkOutput) text(w io.Writer, a *app) error { return render.Text(w, a.style(), result.Run(c)) }

func (c checkOutput) status() int { return result.Run(c).Status() }
