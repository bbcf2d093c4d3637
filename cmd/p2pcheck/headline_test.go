// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// listed are the checks that a line of nagios names, by result, and counted its
// performance data.
func listed(t *testing.T, line string) (ids map[string][]string, counted map[string]int) {
	t.Helper()
	text, data, ok := strings.Cut(line, " | ")
	if !ok {
		t.Fatal(line)
	}
	ids, counted = map[string][]string{}, map[string]int{}
	for part := range strings.SplitSeq(text, "; ") {
		if rank, names, ok := strings.Cut(part, ": "); ok && slices.Contains(result.Ranks, rank) {
			ids[rank] = strings.Fields(names)
		}
	}
	for _, m := range regexp.MustCompile(`(\w+)=(\d+)`).FindAllStringSubmatch(data, -1) {
		var n int
		if _, err := fmt.Sscan(m[2], &n); err != nil {
			t.Fatal(err)
		}
		counted[m[1]] = n
	}
	return ids, counted
}

// The line and the performance data agree: the line names each check once, and has as many checks as
// the performance data counts.
func TestHeadlineCounts(t *testing.T) {
	lines := map[string]string{"bad": run(bad(), t, "--root", "ROOT", "--format", "nagios").out}
	for _, name := range []string{"small-hgx", "grace", "xe", "flat-vm"} {
		lines[name] = run(testenv.Machines[name](), t, "--root", "ROOT", "--format", "nagios").out
	}
	for _, name := range []string{"bare", "fabric", "two-nics"} {
		lines[name] = command("--snapshot", "testdata/testbed/"+name+".tar.gz", "--format", "nagios").out
	}
	for name, line := range lines {
		ids, counted := listed(t, line)
		seen := map[string]bool{}
		for _, result := range []string{"fail", "unknown", "warn"} {
			for _, id := range ids[result] {
				if seen[id] {
					t.Errorf("%s: %s stands there twice: %s", name, id, line)
				}
				seen[id] = true
			}
		}
		if len(ids["fail"]) != counted["checks_failed"] || len(ids["unknown"]) != counted["checks_unknown"] || len(ids["warn"]) != counted["checks_warned"] {
			t.Errorf("%s: %d, %d and %d checks: %s", name, len(ids["fail"]), len(ids["unknown"]), len(ids["warn"]), line)
		}
	}
}
