// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/formats"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/render"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// became is a proof whose first rungs passed, up to last.
func became(outcome chain.Outcome, why string, last p2p.Rung) *p2p.Proof {
	p := p2p.NewProof()
	p.Watch.Counted = true
	p.Outcome, p.Why = outcome, why
	for r := range last + 1 {
		p.Steps[r] = p2p.Step{Result: p2p.ResultPass, Detail: "done"}
	}
	if outcome != chain.Direct && last >= p2p.RungPlace {
		p.Steps[p2p.RungPlace] = p2p.Step{Result: map[chain.Outcome]p2p.Result{chain.Staged: p2p.ResultFail}[outcome], Detail: why}
	}
	return p
}

func refusal(e unix.Errno) *p2p.Proof {
	p := became(chain.Refused, "softgpu_attach answered", p2p.RungExport)
	p.Errno, p.Stage = e, "attach"
	p.Steps[p2p.RungRegister] = p2p.Step{Result: p2p.ResultFail, Detail: p.Why}
	p.Steps[p2p.RungRelease] = p2p.Step{Result: p2p.ResultPass, Detail: "done"}
	return p
}

// proved runs check on a server, whose pairs become what proofs has of them.
func proved(t *testing.T, a *app, proofs map[string]*p2p.Proof, untraced string) result.Run {
	t.Helper()
	return provedBy(t, a, proofs, result.Live{Untraced: untraced})
}

func provedBy(t *testing.T, a *app, proofs map[string]*p2p.Proof, run result.Live) result.Run {
	t.Helper()
	root := machineTree(server, "0x00").Write(t)
	m := machine.Open(root)
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	found, err3 := a.checkAnd(func(_ *machine.Machine, pairs []p2p.Pair) (*result.Live, error) {
		r := &run
		for i, p := range pairs {
			if pairs[i].Prove(m, proofs[p.GPU.Name+" "+p.NIC.Name]); pairs[i].Proof != nil {
				r.Tried++
			}
		}
		return r, nil
	}, m, gpus, nics)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	r := result.Run(found.(checkOutput))
	r.Machine.Config = strings.ReplaceAll(r.Machine.Config, root, "ROOT")
	return r
}

const (
	gpu3, gpu5   = "0000:03:00.0", "0000:05:00.0"
	inGPU, inRAM = "peer-to-peer: 0000:03:00.0 BAR 0 (PCI bus address), below a common switch", "system memory (struct page)"
)

// asPredicted are proofs of what is predicted of the server's pairs.
func asPredicted() map[string]*p2p.Proof {
	return map[string]*p2p.Proof{
		gpu3 + " mlx5_0": became(chain.Direct, inGPU, p2p.RungRelease), gpu5 + " mlx5_0": became(chain.Direct, strings.ReplaceAll(inGPU, gpu3, gpu5), p2p.RungRelease),
		gpu3 + " mlx5_1": became(chain.Staged, inRAM, p2p.RungRelease), gpu5 + " mlx5_1": became(chain.Staged, inRAM, p2p.RungRelease),
		gpu3 + " mlx4_0": refusal(unix.EOPNOTSUPP), gpu5 + " mlx4_0": refusal(unix.EOPNOTSUPP),
		gpu3 + " rxe0": became(chain.Staged, inRAM, p2p.RungRelease), gpu5 + " rxe0": became(chain.Staged, inRAM, p2p.RungRelease),
	}
}

// The texts about proofs: a contradiction comes first.
func TestProofText(t *testing.T) {
	for _, c := range []struct {
		name    string
		verbose bool
		change  func(map[string]*p2p.Proof)
		blind   string
	}{
		{"live", false, func(map[string]*p2p.Proof) {}, ""},
		{"live-v", true, func(p map[string]*p2p.Proof) { p[gpu3+" mlx5_0"].WriteRate, p[gpu3+" mlx5_0"].ReadRate = 2e9, 1e9 }, ""},
		{"live-contradicted", false, func(p map[string]*p2p.Proof) {
			p[gpu3+" mlx5_0"] = became(chain.Staged, inRAM, p2p.RungRelease)
			p[gpu5+" mlx5_1"] = refusal(unix.EINVAL)
			p[gpu5+" mlx5_0"].Steps[p2p.RungRead] = p2p.Step{Result: p2p.ResultFail, Detail: "RDMA READ of what the CPU wrote: 4096 wrong byte(s)"}
			p[gpu5+" mlx5_0"].Watch.Lines = []string{"DMAR: [DMA Read NO_PASID] Request device [04:00.0] fault addr 0xfb020000"}
			delete(p, gpu5+" rxe0")
		}, ""},
		{"live-untraced", false, func(all map[string]*p2p.Proof) {
			for _, p := range all {
				if p.Outcome != chain.Refused {
					p.Outcome, p.Why = chain.OutcomeUnknown, "no trace shows where the bytes are: EPERM"
					p.Steps[p2p.RungPlace] = p2p.Step{Detail: p.Why}
				}
			}
		}, "EPERM"},
	} {
		t.Run(c.name, func(t *testing.T) {
			proofs := asPredicted()
			c.change(proofs)
			a := &app{verbose: c.verbose, skip: []string{"all"}}
			var b strings.Builder
			if err := render.Text(&b, a.style(), proved(t, a, proofs, c.blind)); err != nil {
				t.Fatal(err)
			}
			golden(t, c.name+".txt", b.String())
		})
	}
}

// Other programs are told as well, and a file that --json wrote is read again.
func TestProofFormats(t *testing.T) {
	proofs := asPredicted()
	proofs[gpu3+" mlx5_0"] = became(chain.Staged, inRAM, p2p.RungRelease)
	r := proved(t, &app{}, proofs, "")
	for format, want := range map[string]string{
		"nagios":     "P2PCHECK CRITICAL - 1 prediction contradicted; 1 of 8 pairs proven direct",
		"npd":        "1 prediction contradicted; ",
		"nfd":        "p2pcheck.contradicted=1\n",
		"prometheus": `p2pcheck_pair_proof{gpu="0000:03:00.0",nic="mlx5_0",outcome="staged"} 1`,
	} {
		var b strings.Builder
		(&app{format: format}).writer()(&b, formats.Input{Found: &r, Status: r.Status()})
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: %s", format, &b)
		}
	}
	var schemas referencetest.Checker
	write := func(r result.Run) string {
		var b bytes.Buffer
		d := cli.Document{Schema: schema, Command: "check", Status: r.Status(), Result: r}
		name := filepath.Join(t.TempDir(), "run.json")
		if err := errors.Join(d.Write(&b), os.WriteFile(name, b.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := schemas.Check("p2pcheck/check", b.Bytes()); err != nil {
			t.Error(err)
		}
		again, err := readResult(name)
		if err != nil || again.Status() != r.Status() || again.Live == nil || *again.Live != *r.Live {
			t.Errorf("%v: %+v", err, again.Live)
		}
		return name
	}
	before, err1 := readResult(write(r))
	after, err2 := readResult(write(proved(t, &app{}, asPredicted(), "")))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	differs, _ := fleet.Compare(before, after)
	for _, d := range differs {
		seen[d.What+" "+d.Name+" "+d.After] = true
	}
	if !seen["proof 0000:03:00.0 -> mlx5_0 direct"] || !seen["check ACT-PREDICTION 0000:03:00.0 -> mlx5_0 pass"] {
		t.Errorf("%v", seen)
	}
	// A run without proofs does not differ by that.
	after.Live = nil
	differs, _ = fleet.Compare(before, after)
	for _, d := range differs {
		t.Errorf("without proofs: %+v", d)
	}
}

// --live is for this machine.
func TestLiveUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		err  string
	}{
		{[]string{"--live", "--root", "ROOT"}, "--live is for this machine"},
		{[]string{"--live", "--sysfs", "ROOT/sys"}, "--live is for this machine"},
		{[]string{"--live", "--kernel", "7.2"}, "--live is for this machine"},
		{[]string{"--live", "--snapshot", "ROOT/none"}, "--live is for this machine"},
		{[]string{"--timeout", "1s"}, "--timeout"},
		{[]string{"--live", "--timeout", "-1s"}, "--timeout"},
		{[]string{"topo", "--live"}, "unknown flag: --live"},
		{[]string{"serve", "--live"}, "unknown flag: --live"},
	} {
		if r := run(machineTree(server, "0x00"), t, c.args...); r.status != cli.ExitUsage || !strings.Contains(r.err, c.err) || r.out != "" {
			t.Errorf("%q: status %d, %s%s", c.args, r.status, r.err, r.out)
		}
	}
}

// The build without cgo tries what the other does, but to write and read, and says
// so. Here it has nothing to try.
func TestLiveWithoutCgo(t *testing.T) {
	bin := testenv.BuildWithoutCgo(t)
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), bin, "--live", "--json", "--skip", "all")
	cmd.Stdout, cmd.Stderr = &out, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var d struct{ Result result.Run }
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		t.Fatalf("%v: %s%s", err, &out, &stderr)
	}
	l := d.Result.Live
	if l == nil || !strings.Contains(l.Unmoved, "built without cgo") || strings.Contains(l.Untried, "cgo") || (l.Untried == "") != (l.Tried > 0) {
		t.Errorf("%+v", l)
	}
	if status := cmd.ProcessState.ExitCode(); status != cli.ExitUnavailable && status != cli.ExitFailed {
		t.Errorf("status %d", status)
	}
}

// Of each machine in a file the build without cgo says what the other says, to the
// last word: what cgo adds, NVML and CUDA, is asked of this machine only.
func TestTheSameWithoutCgo(t *testing.T) {
	testenv.Exhaustive(t)
	bin := testenv.BuildWithoutCgo(t)
	machines, err := filepath.Glob("testdata/testbed/*.tar.gz")
	if err != nil || len(machines) < 12 {
		t.Fatalf("%v: %v", machines, err)
	}
	for _, file := range machines {
		same(t, bin, "--snapshot", file)
	}
	for _, tree := range testenv.Machines {
		same(t, bin, "--root", tree().Write(t))
	}
	same(t, bin, "--root", bad().Write(t))
	same(t, bin, "--root", testenv.FlatVM().Write(t))
}

// same runs the other build with these arguments as well.
func same(t *testing.T, bin string, args ...string) {
	t.Helper()
	for _, args := range [][]string{append(args, "--json"), append([]string{"topo"}, args...)} {
		want := command(args...)
		var out, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Stdout, cmd.Stderr = &out, &stderr
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if status := cmd.ProcessState.ExitCode(); status != want.status || out.String() != want.out || stderr.String() != want.err || out.Len() == 0 {
			t.Errorf("%q: status %d, and %d with cgo: %s", args, status, want.status, &stderr)
		}
	}
}

// A proof that moved no bytes says where the buffer is, and that it is not known whether bytes arrive.
// The pair is not proven.
func TestProofWithoutMoving(t *testing.T) {
	const why = "built without cgo: libibverbs cannot be loaded"
	proofs := asPredicted()
	for _, p := range proofs {
		if p.Outcome == chain.Refused {
			continue
		}
		for _, r := range []p2p.Rung{p2p.RungWrite, p2p.RungRead, p2p.RungOrder} {
			p.Steps[r] = p2p.Step{Result: p2p.ResultSkip, Detail: "not moved: " + why}
		}
	}
	a := &app{}
	r := provedBy(t, a, proofs, result.Live{Unmoved: why})
	if r.Live.Proven.Direct != 0 || r.Live.Proven.Unknown != 2 {
		t.Errorf("%+v", r.Live)
	}
	for _, f := range r.Checks {
		switch f.ID {
		case "ACT-WRITE", "ACT-READ", "ACT-ORDER":
			if f.Result != "skip" || !strings.Contains(f.Read, why) {
				t.Errorf("%s: %s: %s", f.ID, f.Result, f.Read)
			}
		case "ACT-REG", "ACT-TRACE":
			if f.Result == "skip" {
				t.Errorf("%s: %s: %s", f.ID, f.Result, f.Read)
			}
		}
	}
	var b strings.Builder
	if err := render.Text(&b, a.style(), r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Live proof: registered; nothing was written and read", "direct, not moved", "nothing proves that bytes arrive: " + why} {
		if !strings.Contains(flat(b.String()), want) {
			t.Errorf("%q is not there: %s", want, &b)
		}
	}
}
