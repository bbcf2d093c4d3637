// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// outcomes are p2pcheck's words for a pair, and whether such a pair is bad.
var outcomes = map[string]bool{"direct": false, "staged": true, "refused": true, "lost": true, "broken": true, "unknown": false}

// machinesByOutcome writes for each outcome a machine of the corpus, all pairs of which have it.
func machinesByOutcome(t *testing.T) map[string]string {
	t.Helper()
	var corpus []testenv.CorpusMachine
	t.Run("corpus", func(t *testing.T) {
		t.Chdir("..") // the corpus is in the library's module
		corpus = testenv.Corpus(t)
	})
	out := map[string]string{}
	for _, c := range corpus {
		if len(c.Pairs) == 0 || len(c.Pairs) > 4 || len(out) == len(outcomes) {
			continue
		}
		root := c.Tree.Write(t)
		if o := onlyOutcome(t, root); o != "" && out[o] == "" {
			out[o] = root
		}
	}
	for o := range outcomes {
		if out[o] == "" {
			t.Fatalf("the corpus has no machine of a few pairs that are all %s", o)
		}
	}
	return out
}

// series are the metrics of pairs.
var series = regexp.MustCompile(`(?m)^p2pcheck_pair_outcome\{.*outcome="([^"]*)"\} 1$`)

// onlyOutcome is the outcome of all pairs of a machine, by the metrics; "" if they differ.
func onlyOutcome(t *testing.T, root string) (outcome string) {
	t.Helper()
	out, _ := p2pcheck(t, "--root", root, "--skip", "all", "--format", "prometheus").Output() // the status is that of the machine
	for _, pair := range series.FindAllStringSubmatch(string(out), -1) {
		if _, ok := outcomes[pair[1]]; !ok {
			t.Fatalf("%s: an outcome %s that this test does not know", root, pair[1])
		}
		if outcome != "" && outcome != pair[1] {
			return ""
		}
		outcome = pair[1]
	}
	return outcome
}

// baselineOf is a file with a run of p2pcheck on a machine, without checks.
func baselineOf(t *testing.T, root string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "baseline.json")
	cmd := p2pcheck(t, "--root", root, "--skip", "all", "--json", "-o", file)
	if out, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() == 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// p2pcheck is the program of the static image.
func p2pcheck(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), filepath.Join(staticImage(t), "usr/bin/p2pcheck"), args...)
}
