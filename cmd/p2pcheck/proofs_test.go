// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/internal/referencetest"
	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/proofs"
)

// A run with --live keeps its proofs in the file of --proofs, and later runs go by them.
func TestProofsAreKept(t *testing.T) {
	tree := machineTree(server, "0x00")
	const boot = "proc/sys/kernel/random/boot_id"
	tree.Files[boot] = "a boot\n"
	root := tree.Write(t)
	file := filepath.Join(t.TempDir(), "proofs.json")
	ask := func() (string, string) {
		var out strings.Builder
		a := &app{stdout: &out, stderr: &out}
		a.run([]string{"--root", root, "--skip", "all", "--proofs", file})
		var why strings.Builder
		a = &app{stdout: &why, stderr: &why}
		a.run([]string{"why", gpu3, "mlx5_1", "--root", root, "--proofs", file})
		return strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(why.String()), " ")
	}
	if out, _ := ask(); !strings.Contains(out, "0000:03:00.0 amdgpu REFUSED SYS direct PIX STAGED PHB") || !strings.Contains(out, "no such file or directory") {
		t.Errorf("without proofs: %s", out)
	}
	m := machine.Open(root)
	gpus, err1 := drivers.GPUs(m)
	nics, err2 := drivers.NICs(m)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	var trials []proofs.Trial
	for _, g := range gpus {
		for _, n := range nics {
			p := p2p.Judge(m, g, n)
			switch g.Name + " " + n.Name {
			case gpu3 + " mlx5_0":
				p.Prove(m, became(chain.Staged, inRAM, p2p.RungRelease))
			case gpu3 + " mlx5_1":
				p.Prove(m, became(chain.Direct, inGPU, p2p.RungRelease))
			}
			c := proofs.Observe(m, p)
			trials = append(trials, proofs.Trial{Pair: p, Before: c, After: c})
		}
	}
	a := &app{proofs: file}
	if err := a.keep(m, trials); err != nil {
		t.Fatal(err)
	}
	var schemas referencetest.Checker
	if err := schemas.Check("p2pcheck/proofs", []byte(fileText(t, file))); err != nil {
		t.Error(err)
	}
	out, why := ask()
	if !strings.Contains(out, "0000:03:00.0 amdgpu REFUSED SYS STAGED PIX direct PHB") || strings.Contains(out, file+":") {
		t.Errorf("with proofs: %s", out)
	}
	if !strings.Contains(why, "0000:03:00.0 -> mlx5_1: direct (PHB)") || !strings.Contains(why, "proof: a live proof has shown it <- decides proven at ") {
		t.Errorf("with proofs: %s", why)
	}
	// After the machine was started anew, it is the prediction that counts.
	if err := os.WriteFile(filepath.Join(root, boot), []byte("another boot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, why = ask()
	if !strings.Contains(out, "0000:03:00.0 amdgpu REFUSED SYS direct PIX STAGED PHB") || !strings.Contains(why, "the machine was started anew since") {
		t.Errorf("after another start: %s%s", out, why)
	}
}

func TestProofsFile(t *testing.T) {
	tree := corpusTree(t, "case-13-vfio-host")
	file := filepath.Join(t.TempDir(), "proofs.json")
	for _, c := range []struct {
		name, text string
		status     int
		says       string
	}{
		{"none yet", "", cli.ExitUnavailable, "--proofs: open " + file + ": no such file or directory"},
		{"another document", `{"schema":"p2pcheck/v2"}`, cli.ExitUsage, "--proofs " + file + ": it has no proofs of p2pcheck"},
		{"proofs", `{"schema":"p2pcheck-proofs/v1","boot":"x","records":[]}`, cli.ExitUnavailable, "no RDMA device: the host gives its NICs to guests"},
	} {
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if r := run(tree, t, "--root", "ROOT", "--proofs", file); r.status != c.status || !strings.Contains(r.err, c.says) || strings.Contains(r.err, "--help") {
			t.Errorf("%s: %d, %s; want %d, %s", c.name, r.status, r.err, c.status, c.says)
		}
	}
}
