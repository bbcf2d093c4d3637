// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// slurm is one run of the health check, with doubles of its neighbours.
type slurm struct {
	check    string // what p2pcheck does, in shell; "" is none
	state    string // of the node
	scontrol int    // the status of scontrol update
	env      []string
}

// run returns the exit status, what scontrol was told, and what was said.
func (s slurm) run(t *testing.T) (status int, told, said string) {
	t.Helper()
	dir := t.TempDir()
	program := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if s.check != "" {
		program("p2pcheck", `printf '%s\n' "$@" >`+dir+"/args\n"+s.check)
	}
	program("scontrol", `case $1 in
-o) echo "NodeName=$4 State=`+s.state+` Comment=no DRAIN" ;;
update) shift; printf '<%s>' "$@" >`+dir+`/told; exit `+map[int]string{0: "0", 1: "1"}[s.scontrol]+` ;;
esac`)
	program("logger", `echo "$@" >>`+dir+"/log")
	cmd := exec.CommandContext(t.Context(), "slurm/p2pcheck-health.sh")
	cmd.Env = append([]string{"PATH=" + dir + ":" + os.Getenv("PATH"), "P2PCHECK=" + dir + "/p2pcheck", "P2PCHECK_CONF=" + dir + "/conf", "SLURMD_NODENAME=gpu07"}, s.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "told"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if args, err := os.ReadFile(filepath.Join(dir, "args")); err == nil && !strings.HasPrefix(string(args), "--format\nnagios\n") {
		t.Errorf("p2pcheck was called with %q", args)
	}
	return cmd.ProcessState.ExitCode(), strings.ReplaceAll(string(text), dir, "DIR"), out.String()
}

// A node is drained when p2pcheck says that it is bad, and not when it says that
// it does not know, unless that is asked for.
func TestSlurmHealthCheck(t *testing.T) {
	const line = `echo "P2PCHECK %s - 2 of 4 pairs direct; fail: ISO-ATS \"NV-MODTYPE\" | direct=2"; exit `
	says := func(word, status string) string { return strings.Replace(line, "%s", word, 1) + status }
	const drained = "<NodeName=gpu07><State=DRAIN><Reason=p2pcheck: 2 of 4 pairs direct; fail: ISO-ATS 'NV-MODTYPE'>"
	drain := []string{"P2PCHECK_UNKNOWN=drain"}
	compared := func(word, worse, status string) string {
		return `echo "P2PCHECK ` + word + ` - 2 of 4 pairs direct; fail: ISO-ATS | direct=2 staged=2 worse=` + worse + `"; exit ` + status
	}
	for name, c := range map[string]struct {
		slurm
		status int
		told   string
		said   string
	}{
		"good":                   {slurm{check: says("OK", "0")}, 0, "", ""},
		"warnings":               {slurm{check: says("WARNING", "1")}, 0, "", ""},
		"bad":                    {slurm{check: says("CRITICAL", "2"), state: "IDLE"}, 0, drained, "drained gpu07"},
		"bad, drained by others": {slurm{check: says("CRITICAL", "2"), state: "IDLE+DRAIN"}, 0, "", "already"},
		"bad, draining":          {slurm{check: says("CRITICAL", "2"), state: "MIXED+DRAINING"}, 0, "", "already"},
		"bad, scontrol fails":    {slurm{check: says("CRITICAL", "2"), state: "IDLE", scontrol: 1}, 1, drained, "did not drain"},
		"bad, as Prolog":         {slurm{check: says("CRITICAL", "2"), env: []string{"SLURM_JOB_ID=7"}}, 1, "", "2 of 4 pairs"},
		"bad, dry":               {slurm{check: says("CRITICAL", "2"), env: []string{"P2PCHECK_DRYRUN=1"}}, 0, "", "would drain gpu07"},
		"unknown":                {slurm{check: says("UNKNOWN", "3")}, 0, "", "2 of 4 pairs"},
		"unknown, asked":         {slurm{check: says("UNKNOWN", "3"), env: drain}, 0, drained, "drained"},
		"unknown, as Prolog":     {slurm{check: says("UNKNOWN", "3"), env: []string{"SLURM_JOB_ID=7"}}, 0, "", "2 of 4"},
		"no answer":              {slurm{check: "exec sleep 60", env: []string{"P2PCHECK_TIMEOUT=0.2"}}, 0, "", "no answer in 0.2 seconds"},
		"no answer, asked":       {slurm{check: "exec sleep 60", env: append([]string{"P2PCHECK_TIMEOUT=0.2"}, drain...)}, 0, "<NodeName=gpu07><State=DRAIN><Reason=p2pcheck: no answer in 0.2 seconds>", "drained"},
		"no answer, stubborn":    {slurm{check: "exit 137"}, 0, "", "no answer"},
		"no program":             {slurm{}, 0, "", "is not there"},
		"no program, asked":      {slurm{env: append([]string{"P2PCHECK=/none/p2pcheck"}, drain...)}, 0, "<NodeName=gpu07><State=DRAIN><Reason=p2pcheck: /none/p2pcheck is not there>", "drained"},
		"crash":                  {slurm{check: "kill -SEGV $$"}, 0, "", "ended with 139"},
		"with a domain":          {slurm{check: says("CRITICAL", "2"), env: []string{"SLURMD_NODENAME=gpu07.example.org"}}, 0, drained, "drained"},
		"of several lines":       {slurm{check: "printf 'P2PCHECK CRITICAL - a\\nb | x=1\\n'; exit 2"}, 0, "<NodeName=gpu07><State=DRAIN><Reason=p2pcheck: a b>", "drained"},
		// With a baseline only what is worse drains.
		"bad as ever":              {slurm{check: compared("CRITICAL", "0", "2"), state: "IDLE"}, 0, "", "gpu07 stays, for nothing is worse than in the baseline: 2 of 4 pairs direct"},
		"bad as ever, as Prolog":   {slurm{check: compared("CRITICAL", "0", "2"), env: []string{"SLURM_JOB_ID=7"}}, 0, "", "stays"},
		"bad as ever, asked":       {slurm{check: compared("CRITICAL", "0", "2"), env: drain}, 0, "", "stays"},
		"bad as ever, with proofs": {slurm{check: `echo "P2PCHECK CRITICAL - a | direct=0 worse=0 proven_direct=0"; exit 2`}, 0, "", "stays"},
		"worse":                    {slurm{check: compared("CRITICAL", "1", "2"), state: "IDLE"}, 0, "<NodeName=gpu07><State=DRAIN><Reason=p2pcheck: 2 of 4 pairs direct; fail: ISO-ATS>", "drained gpu07"},
		"worse by ten":             {slurm{check: compared("CRITICAL", "10", "2"), env: []string{"SLURM_JOB_ID=7"}}, 1, "", "2 of 4"},
		"unknown as ever":          {slurm{check: compared("UNKNOWN", "0", "3")}, 0, "", "2 of 4"},
		"worse=0 in the text":      {slurm{check: `echo "P2PCHECK CRITICAL - file worse=0 is missing | direct=0"; exit 2`, env: []string{"SLURM_JOB_ID=7"}}, 1, "", "file worse=0"},
		// Statuses of p2pcheck without a format belong to no line of it.
		"status 1 of a text":     {slurm{check: "echo '4 pairs: 2 direct, 2 lost'; exit 1", env: []string{"SLURM_JOB_ID=7"}}, 0, "", "ended with 1"},
		"status 3 of a text":     {slurm{check: "echo '4 pairs: 4 unknown'; exit 3", env: []string{"SLURM_JOB_ID=7"}}, 0, "", "ended with 3"},
		"an interruption":        {slurm{check: "exit 130"}, 0, "", "ended with 130"},
		"critical with status 3": {slurm{check: says("CRITICAL", "3")}, 0, "", "ended with 3"},
		// A Go program that panics ends with 2, as does one with a wrong flag.
		"a crash of status 2":          {slurm{check: "echo 'panic: runtime error' >&2; exit 2"}, 0, "", "ended with 2"},
		"a crash, as Prolog":           {slurm{check: "exit 2", env: []string{"SLURM_JOB_ID=7"}}, 0, "", "ended with 2"},
		"a crash, asked":               {slurm{check: "exit 2", env: drain}, 0, "<NodeName=gpu07><State=DRAIN><Reason=p2pcheck: DIR/p2pcheck ended with 2, and did not say why: >", "drained"},
		"a crash after a good line":    {slurm{check: says("OK", "2")}, 0, "", "ended with 2"},
		"another program's complaint":  {slurm{check: "echo 'usage: p2pcheck'; exit 2"}, 0, "", "ended with 2, and did not say why: usage: p2pcheck"},
		"good of nothing that is said": {slurm{check: "exit 0"}, 0, "", "ended with 0"},
	} {
		t.Run(name, func(t *testing.T) {
			status, told, said := c.run(t)
			if status != c.status || told != c.told || !strings.Contains(said, c.said) || c.said == "" && said != "" {
				t.Errorf("status %d, scontrol %s: %s", status, told, said)
			}
		})
	}
}

// bad is a machine with NVIDIA's proprietary modules.
func bad(t *testing.T) string {
	t.Helper()
	tree := testenv.Machines["small-hgx"]()
	tree.Files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570\n"
	tree.Files["sys/module/nvidia/taint"] = "POE\n"
	return tree.Write(t)
}

// With p2pcheck itself: a machine that is bad drains the node with the reason.
func TestSlurmWithP2pcheck(t *testing.T) {
	program := filepath.Join(staticImage(t), "usr/bin/p2pcheck")
	nowhere := filepath.Join(t.TempDir(), "none")
	s := slurm{check: "exec " + program + ` "$@"`, state: "IDLE", env: []string{"P2PCHECK_ARGS=--root " + nowhere}}
	// Nothing could be looked at, which is no fault of the node.
	if status, told, said := s.run(t); status != 0 || told != "" || !strings.Contains(said, nowhere) {
		t.Errorf("status %d, scontrol %s: %s", status, told, said)
	}
	s.env = []string{"P2PCHECK_ARGS=--frob"}
	if status, told, said := s.run(t); status != 0 || told != "" || !strings.Contains(said, "--frob") {
		t.Errorf("status %d, scontrol %s: %s", status, told, said)
	}
	// Nor is a node without a GPU a bad one.
	worker := testenv.Machines["small-hgx"]()
	worker.Functions = "pci0000:00/0000:00:04.0 class=0x020000 vendor=0x8086 device=0x100e driver:e1000e\n"
	for name := range worker.Files {
		if strings.HasPrefix(name, "sys/devices/pci") || strings.HasPrefix(name, "sys/class/infiniband") || strings.HasPrefix(name, "proc/driver/nvidia") {
			delete(worker.Files, name)
		}
	}
	s.env = []string{"P2PCHECK_ARGS=--root " + worker.Write(t)}
	if status, told, said := s.run(t); status != 0 || told != "" || !strings.Contains(said, "no pair to check") {
		t.Errorf("status %d, scontrol %s: %s", status, told, said)
	}
	s.env = []string{"P2PCHECK_ARGS=--root " + bad(t)}
	if status, told, said := s.run(t); status != 0 || !strings.Contains(told, "<Reason=p2pcheck: 0 of 4 pairs direct (") || !strings.Contains(told, "NV-MODTYPE") {
		t.Errorf("status %d, scontrol %s: %s", status, told, said)
	}
}

// With p2pcheck itself, and a machine for each outcome: staged, refused, lost and broken drain the
// node. None does if the baseline has it.
func TestSlurmOutcomes(t *testing.T) {
	program := filepath.Join(staticImage(t), "usr/bin/p2pcheck")
	machines := machinesByOutcome(t)
	for o, isBad := range outcomes {
		args := "P2PCHECK_ARGS=--skip all --root " + machines[o]
		s := slurm{check: "exec " + program + ` "$@"`, state: "IDLE", env: []string{args}}
		if status, told, said := s.run(t); status != 0 || strings.Contains(told, "DRAIN") != isBad {
			t.Errorf("%s: status %d, scontrol %s: %s", o, status, told, said)
		}
		s.env = []string{args, "SLURM_JOB_ID=7"}
		if status, told, said := s.run(t); (status == 1) != isBad || told != "" {
			t.Errorf("%s, as Prolog: status %d, scontrol %s: %s", o, status, told, said)
		}
		s.env = []string{args + " --baseline " + baselineOf(t, machines[o])}
		if status, told, said := s.run(t); status != 0 || told != "" || isBad && !strings.Contains(said, "nothing is worse") {
			t.Errorf("%s as in the baseline: status %d, scontrol %s: %s", o, status, told, said)
		}
	}
	// The baseline of a good machine, and a bad one now.
	s := slurm{check: "exec " + program + ` "$@"`, state: "IDLE", env: []string{"P2PCHECK_ARGS=--skip all --root " + machines["lost"] + " --baseline " + baselineOf(t, machines["direct"])}}
	if status, told, said := s.run(t); status != 0 || !strings.Contains(told, "worse than its baseline") {
		t.Errorf("worse: status %d, scontrol %s: %s", status, told, said)
	}
	// A baseline that is not there drains nothing.
	s.env = []string{"P2PCHECK_ARGS=--skip all --root " + machines["lost"] + " --baseline /nowhere"}
	if status, told, said := s.run(t); status != 0 || told != "" || !strings.Contains(said, "/nowhere") {
		t.Errorf("no baseline: status %d, scontrol %s: %s", status, told, said)
	}
}
