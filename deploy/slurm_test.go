// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// slurm is one run of the health check, beside a double of p2pcheck. What scontrol is told, and what Slurm makes of it,
// is tested under the real one: package slurmtest.
type slurm struct {
	check string // what p2pcheck does, in shell; "" is none
	env   []string
}

// run returns the exit status and what was said: of a dry run, or as Prolog of a node without a scontrol.
func (s slurm) run(t *testing.T) (status int, said string) {
	t.Helper()
	dir := t.TempDir()
	if s.check != "" {
		text := "#!/bin/sh\n" + `[ "$1 $2" = "--format nagios" ] || exit 99` + "\n" + s.check + "\n"
		if err := os.WriteFile(filepath.Join(dir, "p2pcheck"), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "slurm/p2pcheck-health.sh")
	cmd.Env = append([]string{"P2PCHECK=" + dir + "/p2pcheck", "P2PCHECK_CONF=" + dir + "/conf", "SLURMD_NODENAME=gpu07",
		"P2PCHECK_SCONTROL=/none/scontrol", "P2PCHECK_RESUME=no"}, s.env...)
	if !slices.ContainsFunc(s.env, func(v string) bool { return strings.HasPrefix(v, "SLURM_JOB_ID=") }) {
		cmd.Env = append(cmd.Env, "P2PCHECK_DRYRUN=1")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), strings.ReplaceAll(out.String(), dir, "DIR")
}

// A node is bad when p2pcheck says that it is, and not when it says that it does not know, unless that is asked
// for. No crash and no other program's text is taken for an answer.
func TestSlurmHealthCheck(t *testing.T) {
	says := func(word, status string) string {
		return `echo "P2PCHECK ` + word + ` - 2 of 4 pairs direct; fail: ISO-ATS \"NV-MODTYPE\" | direct=2"; exit ` + status
	}
	const drains = "would drain gpu07: p2pcheck: "
	drain := []string{"P2PCHECK_UNKNOWN=drain"}
	prolog := []string{"SLURM_JOB_ID=7"}
	compared := func(word, worse, status string) string {
		return `echo "P2PCHECK ` + word + ` - 2 of 4 pairs direct; fail: ISO-ATS | direct=2 staged=2 worse=` + worse + `"; exit ` + status
	}
	for name, c := range map[string]struct {
		slurm
		status int
		said   string // a part; "" where nothing is said
	}{
		"good":                {slurm{check: says("OK", "0")}, 0, ""},
		"warnings":            {slurm{check: says("WARNING", "1")}, 0, ""},
		"bad":                 {slurm{check: says("CRITICAL", "2")}, 0, drains + "2 of 4 pairs direct; fail: ISO-ATS 'NV-MODTYPE'"},
		"bad, as Prolog":      {slurm{check: says("CRITICAL", "2"), env: prolog}, 1, "Slurm drains it for its Prolog's failure: p2pcheck: 2 of 4 pairs"},
		"unknown":             {slurm{check: says("UNKNOWN", "3")}, 0, "health: 2 of 4 pairs"},
		"unknown, asked":      {slurm{check: says("UNKNOWN", "3"), env: drain}, 0, drains},
		"unknown, as Prolog":  {slurm{check: says("UNKNOWN", "3"), env: prolog}, 0, "2 of 4"},
		"no answer":           {slurm{check: "exec sleep 60", env: []string{"P2PCHECK_TIMEOUT=0.2"}}, 0, "health: no answer in 0.2 seconds"},
		"no answer, asked":    {slurm{check: "exec sleep 60", env: append([]string{"P2PCHECK_TIMEOUT=0.2"}, drain...)}, 0, drains + "no answer in 0.2 seconds"},
		"no answer, stubborn": {slurm{check: "exit 137"}, 0, "health: no answer"},
		"no program":          {slurm{}, 0, "health: DIR/p2pcheck is not there"},
		"no program, asked":   {slurm{env: append([]string{"P2PCHECK=/none/p2pcheck"}, drain...)}, 0, drains + "/none/p2pcheck is not there"},
		"crash":               {slurm{check: "kill -SEGV $$"}, 0, "health: DIR/p2pcheck ended with 139"},
		// With a baseline only what is worse drains.
		"bad as ever":              {slurm{check: compared("CRITICAL", "0", "2")}, 0, "gpu07 stays, for nothing is worse than in the baseline: 2 of 4 pairs direct"},
		"bad as ever, as Prolog":   {slurm{check: compared("CRITICAL", "0", "2"), env: prolog}, 0, "stays"},
		"bad as ever, asked":       {slurm{check: compared("CRITICAL", "0", "2"), env: drain}, 0, "stays"},
		"bad as ever, with proofs": {slurm{check: `echo "P2PCHECK CRITICAL - a | direct=0 worse=0 proven_direct=0"; exit 2`}, 0, "stays"},
		"worse":                    {slurm{check: compared("CRITICAL", "1", "2")}, 0, drains + "2 of 4 pairs direct; fail: ISO-ATS"},
		"worse by ten":             {slurm{check: compared("CRITICAL", "10", "2"), env: prolog}, 1, "2 of 4"},
		"unknown as ever":          {slurm{check: compared("UNKNOWN", "0", "3")}, 0, "health: 2 of 4"},
		"unknown as ever, asked":   {slurm{check: compared("UNKNOWN", "0", "3"), env: drain}, 0, drains},
		"worse=0 in the text":      {slurm{check: `echo "P2PCHECK CRITICAL - file worse=0 is missing | direct=0"; exit 2`, env: prolog}, 1, "file worse=0"},
		// Statuses of p2pcheck without a format belong to no line of it.
		"status 1 of a text":     {slurm{check: "echo '4 pairs: 2 direct, 2 lost'; exit 1", env: prolog}, 0, "ended with 1"},
		"status 3 of a text":     {slurm{check: "echo '4 pairs: 4 unknown'; exit 3", env: prolog}, 0, "ended with 3"},
		"an interruption":        {slurm{check: "exit 130"}, 0, "health: DIR/p2pcheck ended with 130"},
		"critical with status 3": {slurm{check: says("CRITICAL", "3")}, 0, "health: DIR/p2pcheck ended with 3"},
		// A Go program that panics ends with 2, as does one with a wrong flag.
		"a crash of status 2":          {slurm{check: "echo 'panic: runtime error' >&2; exit 2"}, 0, "health: DIR/p2pcheck ended with 2"},
		"a crash, as Prolog":           {slurm{check: "exit 2", env: prolog}, 0, "ended with 2"},
		"a crash, asked":               {slurm{check: "exit 2", env: drain}, 0, drains + "DIR/p2pcheck ended with 2, and did not say why: "},
		"a crash after a good line":    {slurm{check: says("OK", "2")}, 0, "health: DIR/p2pcheck ended with 2"},
		"another program's complaint":  {slurm{check: "echo 'usage: p2pcheck'; exit 2"}, 0, "health: DIR/p2pcheck ended with 2, and did not say why: usage: p2pcheck"},
		"good of nothing that is said": {slurm{check: "exit 0"}, 0, "health: DIR/p2pcheck ended with 0"},
	} {
		t.Run(name, func(t *testing.T) {
			status, said := c.run(t)
			if status != c.status || !strings.Contains(said, c.said) || c.said == "" && said != "" {
				t.Errorf("status %d: %s", status, said)
			}
		})
	}
}

// A plan of NICs that cannot be made says why, and no old one stays.
func TestSlurmPlan(t *testing.T) {
	for name, c := range map[string]struct{ json, plan, said string }{
		"no run":       {"echo a flag is wrong >&2; exit 2", "exit 0", "DIR/p2pcheck ended with 2, and wrote no run: a flag is wrong"},
		"no plan":      {`echo {} >"$3"; exit 3`, "echo no GPU; exit 1", "no plan of NICs, so that jobs choose by themselves: no GPU"},
		"a remark":     {`echo {} >"$3"; exit 1`, "echo nobody knows; exit 0", "health: nobody knows"},
		"not a remark": {`echo {} >"$3"; exit 0`, "exit 0", ""},
		"it hangs":     {`echo {} >"$3"; exit 0`, "exit 0", "no plan of NICs, so that jobs choose by themselves: DIR/p2pcheck gives no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			program("p2pcheck", `[ "$1" != --json ] || { `+c.json+`; }; [ -z "$HANGS" ] || exec sleep 60; echo "P2PCHECK OK - 4 of 4 pairs direct | direct=4"`)
			program("slurm-p2p", `[ "$1 $8 $9" = "plan --scontrol /none/scontrol" ] || exit 99; `+c.plan)
			old := filepath.Join(dir, "gpu07.json")
			if err := os.WriteFile(old, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "slurm/p2pcheck-health.sh")
			cmd.Env = []string{"PATH=/usr/bin:/bin", "P2PCHECK=" + dir + "/p2pcheck", "P2PCHECK_SLURM=" + dir + "/slurm-p2p", "P2PCHECK_NICS=" + dir,
				"P2PCHECK_CONF=" + dir + "/conf", "SLURMD_NODENAME=gpu07", "P2PCHECK_SCONTROL=/none/scontrol", "P2PCHECK_RESUME=no"}
			if name == "it hangs" {
				cmd.Env = append(cmd.Env, "HANGS=1", "P2PCHECK_TIMEOUT=0.2")
			}
			out, err := cmd.CombinedOutput()
			said := strings.ReplaceAll(string(out), dir, "DIR")
			if err != nil || !strings.Contains(said, c.said) || c.said == "" && said != "" {
				t.Errorf("%v: %s", err, said)
			}
			if _, err := os.Stat(old); (err == nil) != strings.HasSuffix(name, "remark") {
				t.Errorf("the old plan: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".gpu07*")); len(left) > 0 {
				t.Errorf("%v is left", left)
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
	s := slurm{check: "exec " + program + ` "$@"`}
	// A node without a GPU is no bad one.
	worker := testenv.Machines["small-hgx"]()
	worker.Functions = "pci0000:00/0000:00:04.0 class=0x020000 vendor=0x8086 device=0x100e driver:e1000e\n"
	for name := range worker.Files {
		if strings.HasPrefix(name, "sys/devices/pci") || strings.HasPrefix(name, "sys/class/infiniband") || strings.HasPrefix(name, "proc/driver/nvidia") {
			delete(worker.Files, name)
		}
	}
	for args, want := range map[string]string{
		"--root " + nowhere:         nowhere, // nothing could be looked at, which is no fault of the node
		"--frob":                    "--frob",
		"--root " + worker.Write(t): "no pair to check",
	} {
		s.env = []string{"P2PCHECK_ARGS=" + args}
		if status, said := s.run(t); status != 0 || strings.Contains(said, "drain") || !strings.Contains(said, want) {
			t.Errorf("%s: status %d: %s", args, status, said)
		}
	}
	s.env = []string{"P2PCHECK_ARGS=--root " + bad(t)}
	if status, said := s.run(t); status != 0 || !strings.Contains(said, "would drain gpu07: p2pcheck: 0 of 4 pairs direct (") || !strings.Contains(said, "NV-MODTYPE") {
		t.Errorf("status %d: %s", status, said)
	}
}

// With p2pcheck itself, and a machine for each outcome: staged, refused, lost and broken drain the
// node. None does if the baseline has it.
func TestSlurmOutcomes(t *testing.T) {
	program := filepath.Join(staticImage(t), "usr/bin/p2pcheck")
	machines := machinesByOutcome(t)
	const drains = "would drain gpu07"
	for o, isBad := range outcomes {
		args := "P2PCHECK_ARGS=--skip all --root " + machines[o]
		s := slurm{check: "exec " + program + ` "$@"`, env: []string{args}}
		if status, said := s.run(t); status != 0 || strings.Contains(said, drains) != isBad {
			t.Errorf("%s: status %d: %s", o, status, said)
		}
		s.env = []string{args, "SLURM_JOB_ID=7"}
		if status, said := s.run(t); (status == 1) != isBad {
			t.Errorf("%s, as Prolog: status %d: %s", o, status, said)
		}
		s.env = []string{args + " --baseline " + baselineOf(t, machines[o])}
		if status, said := s.run(t); status != 0 || strings.Contains(said, drains) || isBad && !strings.Contains(said, "nothing is worse") {
			t.Errorf("%s as in the baseline: status %d: %s", o, status, said)
		}
	}
	// The baseline of a good machine, and a bad one now.
	s := slurm{check: "exec " + program + ` "$@"`, env: []string{"P2PCHECK_ARGS=--skip all --root " + machines["lost"] + " --baseline " + baselineOf(t, machines["direct"])}}
	if status, said := s.run(t); status != 0 || !strings.Contains(said, drains) || !strings.Contains(said, "worse than its baseline") {
		t.Errorf("worse: status %d: %s", status, said)
	}
	// A baseline that is not there drains nothing.
	s.env = []string{"P2PCHECK_ARGS=--skip all --root " + machines["lost"] + " --baseline /nowhere"}
	if status, said := s.run(t); status != 0 || strings.Contains(said, drains) || !strings.Contains(said, "/nowhere") {
		t.Errorf("no baseline: status %d: %s", status, said)
	}
}
