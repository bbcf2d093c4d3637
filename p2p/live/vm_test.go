// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/placement"
)

// A pair has the predicted outcome, until the GPU's driver changes its behaviour after the
// prediction. A proof that stops early leaves nothing behind, and the proof has the kernel's
// messages of that time.
//
//testbed:machine fabric+EPYC
//testbed:machine-arm64 fabric
//testbed:kernel 7.2
func TestVMProve(t *testing.T) {
	testenv.VM(t)
	gpu := testenv.SoftGPUs(t, "personality=amdgpu")[0]
	m := machine.Open("")
	pair := find(t, m, gpu.PCI, "rxe0")
	p, err := Open(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
		if left := gpu.Buffers(t); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}()
	if p.Blind() != nil {
		t.Fatal(p.Blind())
	}
	t.Run("agrees", func(t *testing.T) {
		pair.Prove(m, p.Prove(t.Context(), pair))
		if pair.Proof.Outcome != chain.Direct || pair.Agrees() != placement.Yes || pair.Proof.Failed() || pair.Proof.Verified < p.opt.Size {
			t.Errorf("predicted %v, proven %+v", pair.Prediction, pair.Proof)
		}
		if q := pair.Proof; q.WriteRate <= 0 || q.ReadRate <= 0 || q.HostWriteRate <= 0 || q.HostReadRate <= 0 || q.Uncompared != "" {
			t.Errorf("rates %g and %g, of host memory %g and %g: %s", q.WriteRate, q.ReadRate, q.HostWriteRate, q.HostReadRate, q.Uncompared)
		}
		if r := pair.Proof.Resident; r == nil || r.Err != nil || r.Before < r.Size || r.After != r.Before {
			t.Errorf("in the GPU's memory: %+v", r)
		}
		if s := pair.Proof.Steps[p2p.RungOrder]; s.Result != p2p.ResultPass || !strings.Contains(s.Detail, "64 flags") {
			t.Errorf("ordered: %+v", s)
		}
	})
	t.Run("contradicts", func(t *testing.T) {
		gpu.Set(t, "pin_rule", "system")
		defer gpu.Set(t, "pin_rule", "vram")
		pair.Prove(m, p.Prove(t.Context(), pair))
		if pair.Proof.Outcome != chain.Staged || pair.Agrees() != placement.No || pair.Proof.Steps[p2p.RungRead].Result != p2p.ResultPass {
			t.Errorf("predicted %v, proven %+v", pair.Prediction, pair.Proof)
		}
		if r := pair.Proof.Resident; r == nil || r.Err != nil || r.Before-r.After < r.Size {
			t.Errorf("in the GPU's memory: %+v", r)
		}
	})
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		for _, s := range p.Prove(ctx, pair).Steps {
			if s.Result != p2p.ResultSkip {
				t.Errorf("%+v", s)
			}
		}
		q := *p
		q.opt.Limit = time.Nanosecond
		if proof := q.Prove(t.Context(), pair); proof.Outcome != chain.OutcomeUnknown || !strings.Contains(proof.Why, "longer than 1ns") {
			t.Errorf("%+v", proof)
		}
	})
	t.Run("no such NIC", func(t *testing.T) {
		other := pair
		other.NIC.Name = "mlx5_99"
		proof := p.Prove(t.Context(), other)
		if s := proof.Steps; s[p2p.RungExport].Result != p2p.ResultPass || s[p2p.RungRegister].Result != p2p.ResultUnknown || s[p2p.RungRelease].Result != p2p.ResultPass || proof.Outcome != chain.OutcomeUnknown {
			t.Errorf("%+v", proof)
		}
	})
	// As in a build without cgo, or on a machine without libibverbs: the kernel
	// registers, and the trace shows where the bytes are.
	t.Run("without libibverbs", func(t *testing.T) {
		q := *p
		q.still, q.nics = ibvfd.ErrNotBuilt, map[string]*ibvfd.Context{}
		defer func() {
			for _, c := range q.nics {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
		prove := func(want chain.Outcome) *p2p.Proof {
			t.Helper()
			proof := q.Prove(t.Context(), pair)
			s := proof.Steps
			if proof.Outcome != want || s[p2p.RungRegister].Result != p2p.ResultPass || s[p2p.RungRelease].Result != p2p.ResultPass || proof.Verified != 0 {
				t.Errorf("want %v, got %+v", want, proof)
			}
			if !strings.Contains(s[p2p.RungRegister].Detail, string(ibvfd.RouteIoctl)) {
				t.Errorf("registered: %+v", s[p2p.RungRegister])
			}
			for _, r := range []p2p.Rung{p2p.RungWrite, p2p.RungRead, p2p.RungOrder} {
				if s[r].Result != p2p.ResultSkip || !strings.Contains(s[r].Detail, "built without cgo") {
					t.Errorf("%v: %+v", r, s[r])
				}
			}
			return proof
		}
		if r := prove(chain.Direct).Resident; r == nil || r.Err != nil || r.Before < r.Size || r.After != r.Before {
			t.Errorf("in the GPU's memory: %+v", r)
		}
		gpu.Set(t, "pin_rule", "system")
		defer gpu.Set(t, "pin_rule", "vram")
		prove(chain.Staged)
	})
	t.Run("log", func(t *testing.T) {
		w := p2p.StartWatch(m, pair)
		for _, line := range []string{"a test names " + gpu.PCI + "\n", "a test names nobody\n"} {
			if err := os.WriteFile("/dev/kmsg", []byte(line), 0); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.Stop(); got.LogErr != nil || len(got.Lines) != 1 || !strings.Contains(got.Lines[0], gpu.PCI) || got.Others == 0 {
			t.Errorf("%+v", got)
		}
	})
}

func find(t *testing.T, m *machine.Machine, gpu, nic string) p2p.Pair {
	t.Helper()
	nics, err := drivers.NICs(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nics {
		if n.Name == nic {
			return findWith(t, m, gpu, n)
		}
	}
	t.Fatalf("there is no %s", nic)
	return p2p.Pair{}
}

// findWith reads the GPU, and the NIC's Importer. It does not read the rest of the NIC again:
// that is a thousand files, which take a second under emulation.
func findWith(t *testing.T, m *machine.Machine, gpu string, n drivers.NIC) p2p.Pair {
	t.Helper()
	gpus, err1 := drivers.GPUs(m)
	var err2 error
	n.Importer, err2 = drivers.ImporterOf(m, n.Name)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for _, g := range gpus {
		if g.Name == gpu {
			return p2p.Judge(m, g, n)
		}
	}
	t.Fatalf("there is no %s", gpu)
	return p2p.Pair{}
}
