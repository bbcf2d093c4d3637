// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/live"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/proofs"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// prove tries each pair that counts. A signal ends it early.
func (a *app) prove(m *machine.Machine, pairs []p2p.Pair) (_ *result.Live, err error) {
	r := &result.Live{}
	ctx, cancel := cli.Context()
	defer cancel()
	start := time.Now()
	var counting []*p2p.Pair
	for i := range pairs {
		if pairs[i].GPU.Exporter.Class != drivers.ClassSystem {
			counting = append(counting, &pairs[i])
		}
	}
	prover, err := live.Open(m, live.Options{Size: int64(a.size), Limit: a.limit, Untraced: len(counting) == 0})
	if err != nil {
		r.Untried = err.Error()
		return r, err
	}
	defer func() {
		err = errors.Join(err, prover.Close())
		r.Elapsed = time.Since(start)
	}()
	if still := prover.Still(); still != nil {
		r.Unmoved = still.Error()
	}
	if len(counting) == 0 {
		r.Untried = "no GPU with memory of its own, or no NIC"
		return r, nil
	}
	if blind := prover.Blind(); blind != nil {
		r.Untraced = blind.Error()
	}
	var trials []proofs.Trial
	progress := cli.NewProgress(os.Stderr)
	for i, p := range counting {
		if ctx.Err() != nil {
			break
		}
		progress.Draw("proving "+p.Name(), int64(i), int64(len(counting)))
		trial, _ := proofs.Try(m, p, a.source.Open, func(p p2p.Pair) *p2p.Proof { return prover.Prove(ctx, p) })
		trials = append(trials, trial)
		r.Tried++
	}
	later := a.source.Open()
	for i, p := range counting[:r.Tried] {
		p.Heed(later)
		trials[i].Pair = *p
	}
	for _, p := range counting[r.Tried:] {
		p.Prove(m, nil)
	}
	progress.Clear()
	return r, errors.Join(context.Cause(ctx), a.keep(m, trials))
}

// proofsHelp is what --proofs is for.
const proofsHelp = "file with proofs of earlier runs: one that still holds decides about its pair"

// judge judges each GPU with each NIC. Proofs of earlier runs, which --proofs names, count where
// they cover a pair. A file that is not there yet is no reason not to judge.
func (a *app) judge(m *machine.Machine, gpus []drivers.GPU, nics []drivers.NIC) (pairs []p2p.Pair, missing, err error) {
	var earlier proofs.Store
	if a.proofs != "" {
		earlier, err = readProofs(a.proofs)
		switch {
		case errors.Is(err, fs.ErrNotExist) && a.proving: // it is about to be written
		case errors.Is(err, fs.ErrNotExist):
			missing = &cli.Unavailable{Err: err}
		case err != nil:
			return nil, nil, &cli.UsageError{Err: badFile{err}}
		}
	}
	for _, g := range gpus {
		for _, n := range nics {
			if a.wanted != nil && a.wanted.Err() != nil {
				return nil, nil, a.wanted.Err()
			}
			p := p2p.Judge(m, g, n)
			if !a.proving {
				earlier.Recall(m, &p, a.proofs)
			}
			pairs = append(pairs, p)
		}
	}
	return pairs, missing, nil
}

// keep writes the proofs to the file that --proofs names.
func (a *app) keep(m *machine.Machine, trials []proofs.Trial) error {
	if a.proofs == "" {
		return nil
	}
	return proofs.Add(a.proofs, m, trials, time.Now(), func(data []byte) error {
		return writeWhole("the proofs", "--proofs", a.proofs, data, othersRead)
	})
}

func readProofs(name string) (proofs.Store, error) {
	f, err := openRegular(name)
	if err != nil {
		return proofs.Store{}, fmt.Errorf("--proofs: %w", err)
	}
	defer f.Close()
	s, err := proofs.Read(f)
	if err != nil {
		return s, fmt.Errorf("--proofs %s: %w", name, err)
	}
	return s, nil
}
