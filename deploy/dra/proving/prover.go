// SPDX-License-Identifier: Apache-2.0

package proving

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/internal/wholefile"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/live"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/proofs"
)

// limit is the time of one proof.
const limit = time.Minute

// Result is what became of a trial.
type Result struct {
	Verdict string // on the pair, with the proof
	Proof   string // the outcome and its evidence, or why there is none
	Kept    bool   // in the file
}

// Prover proves pairs of this machine.
type Prover struct {
	Root    string // above sys and proc of this machine
	File    string // with the proofs
	Options node.Options
}

// Lacks says why no pair of this machine can be proven, nil if nothing is known that hinders.
func (p *Prover) Lacks() error {
	x, err := p.Open()
	if err != nil {
		return err
	}
	return errors.Join(x.lacks(), x.Close())
}

// Open loads what traces the kernel, which takes most of the time. It opens no device.
func (p *Prover) Open() (*Opened, error) {
	x, err := live.Open(machine.Open(p.Root), live.Options{Limit: limit, Brief: true})
	if err != nil {
		return nil, err
	}
	return &Opened{p, x}, nil
}

// Opened proves pairs. It leaves out the order of flags and the rates.
type Opened struct {
	*Prover
	live *live.Prover
}

// Close ends the trace.
func (p *Opened) Close() error { return p.live.Close() }

// lacks says what keeps a proof from showing anything.
func (p *Opened) lacks() error {
	var errs []error
	if blind := p.live.Blind(); blind != nil {
		errs = append(errs, fmt.Errorf("no trace shows where the bytes are: %w", blind))
	}
	if still := p.live.Still(); still != nil {
		errs = append(errs, fmt.Errorf("no bytes can be moved: %w", still))
	}
	return errors.Join(errs...)
}

// Try tries a pair, and keeps the proof. One that the context has ended shows nothing. The devices are closed when
// it returns.
func (p *Opened) Try(ctx context.Context, x pairs.Pair) (r Result, err error) {
	open := func() *machine.Machine { return machine.Open(p.Root) }
	m := open()
	pair, err := node.Judge(m, p.Options, x)
	if err != nil {
		return r, err
	}
	t, ok := proofs.Try(m, &pair, open, func(pair p2p.Pair) *p2p.Proof {
		proof := p.live.Prove(ctx, pair)
		if err = p.live.Release(); err != nil || ctx.Err() != nil {
			return nil
		}
		return proof
	})
	if !ok {
		return r, err
	}
	return p.keep(m, t)
}

// keep adds a trial to the file.
func (p *Prover) keep(m *machine.Machine, t proofs.Trial) (r Result, err error) {
	r = Result{Verdict: t.Pair.Verdict.String(), Proof: t.Pair.Proof.String()}
	now := time.Now()
	file := p.File
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	if err := proofs.Add(p.File, m, []proofs.Trial{t}, now, func(data []byte) error {
		return wholefile.Replace(file, data, 0o644)
	}); err != nil {
		return r, err
	}
	s, err := proofs.ReadFile(p.File)
	for _, x := range s.Records {
		r.Kept = r.Kept || x.GPU == t.Pair.GPU.Name && x.NIC == t.Pair.NIC.Name && !x.Taken.Before(now.Truncate(time.Second))
	}
	return r, err
}
