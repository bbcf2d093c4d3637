// SPDX-License-Identifier: Apache-2.0

package proving

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/proofs"
)

// A pair that is not there is not tried, and leaves no file.
func TestProveNothing(t *testing.T) {
	p := &Prover{Root: testenv.HGX().Write(t), File: filepath.Join(t.TempDir(), "proofs")}
	x, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := x.Try(t.Context(), pairs.Pair{GPU: "0000-13-00-0", NIC: "0000-99-00-0"}); err == nil || !strings.Contains(err.Error(), "NIC 0000-99-00-0 is not there") {
		t.Error(err)
	}
	if _, err := proofs.ReadFile(p.File); err == nil {
		t.Error("the file is there")
	}
}

// The next look has the outcome of a trial. A trial without an outcome changes nothing.
func TestKeep(t *testing.T) {
	root := testenv.HGX()
	root.Files = maps.Clone(root.Files)
	root.Files["proc/sys/kernel/random/boot_id"] = "b1\n"
	p := &Prover{Root: root.Write(t), File: filepath.Join(t.TempDir(), "proofs")}
	x := pairs.Pair{GPU: "0000-13-00-0", NIC: "0000-14-00-0"}
	for _, c := range []struct {
		outcome chain.Outcome
		kept    bool
	}{{chain.OutcomeUnknown, false}, {chain.Direct, true}, {chain.Staged, true}} {
		m := machine.Open(p.Root)
		pair, err := node.Judge(m, p.Options, x)
		if err != nil {
			t.Fatal(err)
		}
		trial, _ := proofs.Try(m, &pair, func() *machine.Machine { return machine.Open(p.Root) }, func(p2p.Pair) *p2p.Proof {
			q := p2p.NewProof()
			q.Outcome, q.Why, q.Memory, q.Size = c.outcome, "a test says so", "vram", 4096
			for r := range q.Steps {
				q.Steps[r] = p2p.Step{Result: p2p.ResultPass}
			}
			return q
		})
		r, err := p.keep(m, trial)
		if err != nil || r.Kept != c.kept || !strings.Contains(r.Proof, "a test says so") {
			t.Fatalf("%v: %+v, %v", c.outcome, r, err)
		}
		kept, err := proofs.ReadFile(p.File)
		if err != nil {
			t.Fatal(err)
		}
		n, err := node.Look(machine.Open(p.Root), node.Options{Kept: kept, File: p.File})
		if err != nil {
			t.Fatal(err)
		}
		now, _ := n.Pair(x.GPU, x.NIC)
		if c.kept && (now.Outcome != c.outcome || !now.ByTrial || time.Since(now.Taken) > time.Hour) || !c.kept && !now.Taken.IsZero() {
			t.Errorf("%v: %+v", c.outcome, now)
		}
		s := &Schedule{Period: 24 * time.Hour}
		only := &node.Node{Pairs: []node.Pair{now}}
		if _, due := s.Next(only, free, time.Now()); due == c.kept {
			t.Errorf("%v: due %v", c.outcome, due)
		}
		if _, due := s.Next(only, free, time.Now().Add(25*time.Hour)); !due {
			t.Errorf("%v: not due after the period", c.outcome)
		}
	}
}
