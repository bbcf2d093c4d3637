// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// plugin is the configuration of a custom plugin of node-problem-detector, as far
// as it is used here.
type plugin struct {
	Plugin  string `json:"plugin"`
	Plugins struct {
		Interval    string `json:"invoke_interval"`
		Timeout     string `json:"timeout"`
		Output      int    `json:"max_output_length"`
		Concurrency int    `json:"concurrency"`
	} `json:"pluginConfig"`
	Source     string `json:"source"`
	Metrics    bool   `json:"metricsReporting"`
	Conditions []struct {
		Type    string `json:"type"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"conditions"`
	Rules []struct {
		Type      string   `json:"type"`
		Condition string   `json:"condition"`
		Reason    string   `json:"reason"`
		Path      string   `json:"path"`
		Args      []string `json:"args"`
		Timeout   string   `json:"timeout"`
	} `json:"rules"`
}

// readPlugin reads a configuration that has one condition and one rule for it.
func readPlugin(t *testing.T, file string) plugin {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p plugin
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.Plugin != "custom" || len(p.Conditions) != 1 || len(p.Rules) != 1 || p.Rules[0].Type != "permanent" || p.Rules[0].Condition != p.Conditions[0].Type {
		t.Fatalf("%+v", p)
	}
	for _, s := range []string{p.Plugins.Interval, p.Plugins.Timeout, p.Rules[0].Timeout} {
		if _, err := time.ParseDuration(s); err != nil {
			t.Error(err)
		}
	}
	return p
}

// The rule's own command line ends with the status that node-problem-detector takes for
// good, bad and unknown, and prints no more than it keeps. Each outcome of a pair has its status.
func TestNodeProblemDetector(t *testing.T) {
	p := readPlugin(t, "node-problem-detector/p2pcheck.json")
	roots := map[string]int{testenv.Machines["small-hgx"]().Write(t): 0, bad(t): 1, testenv.FlatVM().Write(t): 2, t.TempDir(): 2}
	run := func(root string, status int, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(staticImage(t), "usr/bin/p2pcheck"), append([]string{"--root", root}, args...)...)
		out, _ := cmd.Output() // the status is looked at
		if cmd.ProcessState.ExitCode() != status || len(out) == 0 || len(out) > p.Plugins.Output+1 || bytes.Count(out, []byte("\n")) != 1 {
			t.Errorf("status %d, want %d: %q", cmd.ProcessState.ExitCode(), status, out)
		}
	}
	for root, status := range roots {
		run(root, status, p.Rules[0].Args...)
	}
	for o, root := range machinesByOutcome(t) {
		status := 0
		switch {
		case outcomes[o]:
			status = 1
		case o == "unknown":
			status = 2
		}
		run(root, status, append([]string{"--skip", "all"}, p.Rules[0].Args...)...)
	}
}

// worseThan is one run of the plugin that compares, with a double of p2pcheck, or p2pcheck itself.
func worseThan(t *testing.T, program string, args ...string) (status int, line string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node-problem-detector/p2pcheck-worse.sh", args...)
	cmd.Env = append(os.Environ(), "P2PCHECK="+program)
	out, _ := cmd.Output() // the status is looked at
	if len(out) == 0 || len(out) > 81 || bytes.Count(out, []byte("\n")) != 1 {
		t.Errorf("%q: %q", args, out)
	}
	return cmd.ProcessState.ExitCode(), string(bytes.TrimSpace(out))
}

// Only what is worse than in the baseline is a problem of the node.
func TestNodeProblemDetectorWorse(t *testing.T) {
	p := readPlugin(t, "node-problem-detector/p2pcheck-worse.json")
	if len(p.Rules[0].Args) != 1 || filepath.Base(p.Rules[0].Path) != "p2pcheck-worse.sh" {
		t.Errorf("%+v", p.Rules[0])
	}
	for name, c := range map[string]struct {
		check  string
		status int
		line   string
	}{
		"good":         {`echo "P2PCHECK OK - 4 of 4 pairs direct | direct=4 worse=0"`, 0, "nothing is worse than in old.json"},
		"bad as ever":  {`echo "P2PCHECK CRITICAL - 0 of 4 pairs direct | lost=4 worse=0"; exit 2`, 0, "nothing is worse than in old.json"},
		"unknown":      {`echo "P2PCHECK UNKNOWN - 0 of 4 pairs direct | unknown=4 worse=0"; exit 3`, 0, "nothing is worse than in old.json"},
		"worse":        {`echo "P2PCHECK CRITICAL - 3 of 4 pairs direct; worse than its baseline: pair a -> b: lost, was direct | lost=1 worse=1"; exit 2`, 1, "pair a -> b: lost, was direct"},
		"no baseline":  {`echo "P2PCHECK UNKNOWN - no pair to check; old.json: no such file"; exit 3`, 2, "no pair to check; old.json: no such file"},
		"a crash":      {`exit 2`, 2, "p2pcheck wrote nothing"},
		"a killed one": {`kill -KILL $$`, 2, "p2pcheck wrote nothing"},
	} {
		double := filepath.Join(t.TempDir(), "p2pcheck")
		if err := os.WriteFile(double, []byte("#!/bin/sh\n[ \"$*\" = '--format nagios --baseline old.json --skip NET' ] || exit 9\n"+c.check+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if status, line := worseThan(t, double, "old.json", "--skip", "NET"); status != c.status || line != c.line {
			t.Errorf("%s: status %d: %s", name, status, line)
		}
	}
	program := filepath.Join(staticImage(t), "usr/bin/p2pcheck")
	machines := machinesByOutcome(t)
	for o, root := range machines {
		if status, line := worseThan(t, program, baselineOf(t, root), "--skip", "all", "--root", root); status != 0 {
			t.Errorf("%s as in the baseline: status %d: %s", o, status, line)
		}
	}
	if status, line := worseThan(t, program, baselineOf(t, machines["direct"]), "--skip", "all", "--root", machines["lost"]); status != 1 {
		t.Errorf("worse: status %d: %s", status, line)
	}
	if status, line := worseThan(t, program, "/nowhere", "--skip", "all", "--root", machines["lost"]); status != 2 || !bytes.Contains([]byte(line), []byte("/nowhere")) {
		t.Errorf("no baseline: status %d: %s", status, line)
	}
}
