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

// The rule's own command line ends with what node-problem-detector takes for
// good, bad and unknown, and says no more than it keeps.
func TestNodeProblemDetector(t *testing.T) {
	text, err := os.ReadFile("node-problem-detector/p2pcheck.json")
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
		t.Errorf("%+v", p)
	}
	for _, s := range []string{p.Plugins.Interval, p.Plugins.Timeout, p.Rules[0].Timeout} {
		if _, err := time.ParseDuration(s); err != nil {
			t.Error(err)
		}
	}
	for root, status := range map[string]int{testenv.Machines["small-hgx"]().Write(t): 0, bad(t): 1, testenv.FlatVM().Write(t): 2, t.TempDir(): 2} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(staticImage(t), "usr/bin/p2pcheck"), append([]string{"--root", root}, p.Rules[0].Args...)...)
		out, _ := cmd.Output() // the status is looked at
		if cmd.ProcessState.ExitCode() != status || len(out) == 0 || len(out) > p.Plugins.Output+1 || bytes.Count(out, []byte("\n")) != 1 {
			t.Errorf("status %d, want %d: %q", cmd.ProcessState.ExitCode(), status, out)
		}
	}
}
