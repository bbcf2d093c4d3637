// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/deploy/slurm/nicplan"
	"github.com/gpurdma/gpurdma/deploy/slurm/slurmtest"
	"github.com/gpurdma/gpurdma/internal/looktest"
	"github.com/gpurdma/gpurdma/p2p/machine"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/snapshot"
)

// node is a machine of the corpus, with a run of p2pcheck on it.
type node struct{ dir, root, run string }

func nodeOf(t *testing.T, machine string) *node {
	t.Helper()
	n := &node{dir: t.TempDir()}
	n.become(t, slurmtest.Machine(t, machine))
	return n
}

// become makes the node the machine below another directory.
func (n *node) become(t *testing.T, root string) {
	t.Helper()
	run := looktest.Below(t, root, "all").Run
	text, err := json.Marshal(map[string]any{"schema": result.Schema, "command": "check", "exit_status": run.Status(), "result": run})
	n.root, n.run = root, filepath.Join(n.dir, "run.json")
	if err == nil {
		err = os.WriteFile(n.run, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// program writes a double of a program of Slurm.
func (n *node) program(t *testing.T, name, does string) string {
	t.Helper()
	file := filepath.Join(n.dir, name)
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+does+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

// slurmP2P runs the command.
func slurmP2P(args ...string) (stdout, stderr string, err error) {
	c := command()
	var out, said bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&said)
	c.SetArgs(args)
	err = c.Execute()
	return out.String(), said.String(), err
}

// A snapshot has the lines that the machine itself has.
func TestGresOfSnapshot(t *testing.T) {
	n := nodeOf(t, "hgx")
	want, _, err := slurmP2P("gres", "--run", n.run, "--node", "gpu07", "--root", n.root)
	if err != nil || strings.Count(want, "NodeName=gpu07 Name=gpu File=/dev/nvidia") != 8 {
		t.Fatalf("%s%v", want, err)
	}
	taken, err := snapshot.Take(machine.Source{Root: n.root})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := taken.Write(&packed, "test"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.dir, "gpu07.p2pcheck")
	if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _, err := slurmP2P("gres", "--run", n.run, "--node", "gpu07", "--snapshot", file); err != nil || got != want {
		t.Errorf("%s%v, want\n%s", got, err, want)
	}
	for _, c := range []struct{ file, want string }{{n.run, "--snapshot " + n.run}, {"/none", "/none"}} {
		if _, _, err := slurmP2P("gres", "--run", n.run, "--snapshot", c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if _, _, err := slurmP2P("gres", "--run", n.run, "--snapshot", file, "--root", n.root); err == nil || !strings.Contains(err.Error(), "two machines") {
		t.Error(err)
	}
	if _, _, err := slurmP2P("gres", "--run", n.run, "--root", n.dir); err == nil || !strings.Contains(err.Error(), "has sys in it") {
		t.Error(err)
	}
}

// A job keeps its NICs: a new plan gives them to no GPU that is free, also while their ports are down. Where it is not
// known which GPUs jobs have, all keep theirs.
func TestPlanOfJobs(t *testing.T) {
	n := nodeOf(t, "hgx")
	file := filepath.Join(n.dir, "plan.json")
	slurmd := n.program(t, "slurmd", `echo "slurmd: Gres Name=gpu Type=(null) Count=8 Index=0 ID=7696487 File=/dev/nvidia[0-7] Links=(null)" >&2`)
	plan := func(scontrol string) (*nicplan.Plan, string) {
		t.Helper()
		_, said, err := slurmP2P("plan", "--run", n.run, "--root", n.root, "--slurmd", slurmd, "--node", "gpu07", "-o", file, "--scontrol", n.program(t, "scontrol", scontrol))
		if err != nil {
			t.Fatal(err, said)
		}
		p, err := nicplan.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		return p, said
	}
	nics := func(g nicplan.GPU) string {
		var out []string
		for _, n := range g.NICs {
			out = append(out, n.Name)
		}
		return strings.Join(append(out, g.Held...), " ")
	}
	p, _ := plan("exit 1") // without an earlier plan scontrol is not asked
	if nics(p.GPUs[0]) != "mlx5_0" || nics(p.GPUs[1]) != "mlx5_1" {
		t.Fatalf("%+v", p.GPUs)
	}
	// The job with GPU 0 loses the port of its NIC.
	const job = `[ "$1 $2 $3 $4" = "--details show node gpu07" ] || exit 9; echo "NodeName=gpu07 Gres=gpu:8"; echo "   GresUsed=gpu:1(IDX:0)"`
	port(t, n.root, "mlx5_0", "1: DOWN")
	p, said := plan(job)
	if g := p.GPUs[0]; len(g.Held) != 1 || g.Held[0] != "mlx5_0" || said != "" {
		t.Errorf("%+v %s", g, said)
	}
	// The port comes again: the job has it, and no other.
	port(t, n.root, "mlx5_0", "4: ACTIVE")
	p, _ = plan(job)
	if g := p.GPUs[0]; nics(g) != "mlx5_0" || len(g.Held) != 0 {
		t.Errorf("%+v", g)
	}
	for _, g := range p.GPUs[1:] {
		if strings.Contains(nics(g)+" ", "mlx5_0 ") {
			t.Errorf("%s is of a job, and %+v has it", "mlx5_0", g)
		}
	}
	// A GPU of which scontrol does not say whether a job has it counts as in use.
	for _, c := range []struct{ does, says string }{
		{"echo slurm_load_node error: Unable to contact slurm controller; exit 1", "Unable to contact slurm controller"},
		{"echo NodeName=gpu07", "GresUsed"},
	} {
		q, said := plan(c.does)
		if fmt.Sprint(q.GPUs) != fmt.Sprint(p.GPUs) || !strings.Contains(said, "as if a job had it") || !strings.Contains(said, c.says) {
			t.Errorf("%+v, %s", q.GPUs, said)
		}
	}
	// No job has it: nothing is held.
	port(t, n.root, "mlx5_0", "1: DOWN")
	p, _ = plan(`echo "GresUsed=gpu:0(IDX:N/A)"`)
	if g := p.GPUs[0]; len(g.Held) != 0 || len(g.NICs) != 1 {
		t.Errorf("%+v", g)
	}
}

// port sets the state of a NIC's port.
func port(t *testing.T, root, nic, state string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "sys/class/infiniband", nic, "ports/1/state"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte(state+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
