// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The copyright file of package p2pcheck is that of p2pcheck: slurm-p2p, which the package has too, is of no other
// modules.
func TestModulesOfSlurmP2P(t *testing.T) {
	modules := func(dir, program string) []string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", program)
		cmd.Dir = dir
		return strings.Fields(must(t, cmd))
	}
	known := append(modules("../..", "./cmd/p2pcheck"), "github.com/gpurdma/gpurdma/deploy")
	of := modules("..", "./cmd/slurm-p2p")
	for _, m := range of {
		if !slices.Contains(known, m) {
			t.Errorf("slurm-p2p is linked with %s, and p2pcheck is not", m)
		}
	}
	if len(of) < 3 {
		t.Errorf("%q", of)
	}
}
