// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

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
		trial := proofs.Trial{Before: proofs.Observe(a.source.Open(), *p)}
		proof := prover.Prove(ctx, *p)
		trial.After = proofs.Observe(a.source.Open(), *p)
		if name := trial.Changed(); name != "" {
			proof.Void("%s changed while the pair was tried", name)
		}
		p.Prove(m, proof)
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
	// Two runs at once each add to what the other has written.
	dir, err := os.Open(filepath.Dir(a.proofs))
	if err == nil {
		defer dir.Close()
		err = os.NewSyscallError("flock", unix.Flock(int(dir.Fd()), unix.LOCK_EX))
	}
	if err != nil {
		return fmt.Errorf("keep the proofs: %w", err)
	}
	s, err := readProofs(a.proofs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var b bytes.Buffer
	if err := errors.Join(s.Keep(m, trials, time.Now()), s.Write(&b)); err != nil {
		return fmt.Errorf("keep the proofs: %w", err)
	}
	return writeWhole("the proofs", "--proofs", a.proofs, b.Bytes(), othersRead)
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
