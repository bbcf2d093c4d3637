// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/live"
	"github.com/gpurdma/gpurdma/p2p/machine"
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
	prover, err := live.Open(m, live.Options{Limit: a.limit, Untraced: len(counting) == 0})
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
	progress := cli.NewProgress(os.Stderr)
	for i, p := range counting {
		if ctx.Err() != nil {
			break
		}
		progress.Draw("proving "+p.GPU.Name+" -> "+p.NIC.Name, int64(i), int64(len(counting)))
		p.Prove(m, prover.Prove(ctx, *p))
		r.Tried++
	}
	for _, p := range counting[r.Tried:] {
		p.Prove(m, nil)
	}
	progress.Clear()
	return r, context.Cause(ctx)
}
