// SPDX-License-Identifier: Apache-2.0

package proving

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/deploy/dra/node"
	"github.com/gpurdma/gpurdma/deploy/dra/pairs"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/proofs"
)

// lookNow looks at this machine, with the proofs of a file.
func lookNow(t *testing.T, file string) node.Node {
	t.Helper()
	kept, err := proofs.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Look(machine.Open("/"), node.Options{Kept: kept, File: file, Software: true})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// On a real kernel, a pair is proven after a proof that has found the bytes in the GPU, and staged after one that has
// found them in system memory. A proof that a claim has ended is not kept.
//
//testbed:machine fabric+EPYC
//testbed:kernel 7.2
func TestVMProve(t *testing.T) {
	testenv.VM(t)
	gpu := testenv.SoftGPUs(t, "personality=amdgpu")[0]
	p := &Prover{Root: "/", File: filepath.Join(t.TempDir(), "proofs"), Options: node.Options{Software: true}}
	if err := p.Lacks(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	opened, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("opened in %v", time.Since(start).Round(time.Millisecond))
	defer func() {
		start := time.Now()
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("closed in %v", time.Since(start).Round(time.Millisecond))
	}()
	n, err := node.Look(machine.Open("/"), p.Options)
	if err != nil {
		t.Fatal(err)
	}
	var x pairs.Pair
	for _, d := range n.Direct() {
		if n.GPU(d.GPU).PCI.String() == gpu.PCI && n.NIC(d.NIC).Name == "rxe0" {
			x = key(node.Pair{GPU: d.GPU, NIC: d.NIC})
		}
	}
	if x.GPU == "" {
		t.Fatalf("%s and rxe0 are not direct: %+v", gpu.PCI, n.Pairs)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("a pod needs it"))
	if r, err := opened.Try(ctx, x); err != nil || r.Kept {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := proofs.ReadFile(p.File); err == nil {
		t.Error("the file is there")
	}
	for _, c := range []struct {
		rule    string
		outcome chain.Outcome
		proven  bool
	}{{"vram", chain.Direct, true}, {"system", chain.Staged, false}, {"vram", chain.Direct, true}} {
		gpu.Set(t, "pin_rule", c.rule)
		start := time.Now()
		r, err := opened.Try(t.Context(), x)
		if err != nil || !r.Kept {
			t.Fatalf("%+v, %v", r, err)
		}
		t.Logf("%s, in %v: %s; %s", c.rule, time.Since(start).Round(time.Millisecond), r.Verdict, r.Proof)
		n := lookNow(t, p.File)
		if now, _ := n.Pair(x.GPU, x.NIC); now.Outcome != c.outcome || now.Proven != c.proven || now.Taken.IsZero() || now.ByTrial != (c.outcome != chain.Direct || c.proven) {
			t.Errorf("%s: %+v", c.rule, now)
		}
		if left := gpu.Buffers(t); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	// A claim that comes meanwhile waits for the end of the proof.
	claimed := make(chan time.Time, 1)
	ctx, stop = context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() {
		claimed <- time.Now()
		stop(errors.New("a pod needs it"))
	})
	was := lookNow(t, p.File)
	before, _ := was.Pair(x.GPU, x.NIC)
	r, err := opened.Try(ctx, x)
	if err != nil || len(gpu.Buffers(t)) > 0 {
		t.Errorf("%+v, %v; left: %v", r, err, gpu.Buffers(t))
	}
	t.Logf("the proof ended %v after the claim", time.Since(<-claimed).Round(time.Millisecond))
	is := lookNow(t, p.File)
	after, _ := is.Pair(x.GPU, x.NIC)
	if !after.Proven || !r.Kept && !after.Taken.Equal(before.Taken) {
		t.Errorf("%+v, before %+v; kept %v", after, before, r.Kept)
	}
	if _, err := opened.Try(t.Context(), pairs.Pair{GPU: x.GPU, NIC: "none"}); err == nil || !strings.Contains(err.Error(), "NIC none is not there") {
		t.Error(err)
	}
}
