// SPDX-License-Identifier: Apache-2.0

package slurmtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// howTo has the lines of the configuration.
const howTo = "how-to/slurm.md"

// Documented returns the lines that a document below docs has for a file of the configuration: the block after the
// comment <!-- FILE -->. The tests run these very lines.
func Documented(t *testing.T, document, file string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/src/docs", document))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "<!-- "+file+" -->\n")
	if !ok {
		t.Fatalf("docs/%s has no block of %s", document, file)
	}
	for line := range strings.Lines(strings.TrimLeft(rest, "\n")) {
		code, ok := strings.CutPrefix(line, "    ")
		if !ok {
			break
		}
		lines = append(lines, strings.TrimSpace(code))
	}
	if len(lines) == 0 {
		t.Fatalf("docs/%s has an empty block of %s", document, file)
	}
	return lines
}

// SlurmConf is the document's lines for slurm.conf. The health check runs every two seconds, not each five minutes.
// Lines that begin with one of the words of without are left out.
func SlurmConf(t *testing.T, without ...string) (lines []string) {
	t.Helper()
	often := false
	for _, line := range Documented(t, howTo, "slurm.conf") {
		key, _, _ := strings.Cut(line, "=")
		if key == "HealthCheckInterval" {
			line, often = "HealthCheckInterval=2", true
		}
		left := false
		for _, w := range without {
			left = left || w == key
		}
		if !left {
			lines = append(lines, line)
		}
	}
	if !often {
		t.Fatal("the document has no HealthCheckInterval")
	}
	return lines
}

// P2PCheckConf is the document's line for the plan of NICs, and those by which each node has a machine of the corpus in
// /srv.
func P2PCheckConf(t *testing.T, more ...string) []string {
	t.Helper()
	return append(append(Documented(t, howTo, "p2pcheck.conf"), `P2PCHECK_ARGS="--skip all --root /srv/$SLURMD_NODENAME"`, `P2PCHECK_ROOT=/srv/$SLURMD_NODENAME`), more...)
}
