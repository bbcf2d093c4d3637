// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// exposure is the last line of `systemd-analyze security`.
var exposure = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+) `)

// most is the exposure that a unit has to be below: systemd calls what is below 5 "OK".
const most = 3.0

// The units are as closed as p2pcheck can be, by systemd's own measure of this machine and of each suite.
func TestUnitsAreHardened(t *testing.T) {
	tool(t, "systemd-analyze")
	units, err := filepath.Glob("../systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("%q, %v", units, err)
	}
	for _, unit := range units {
		check(t, must(t, exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold=30", unit)))
	}
}

func check(t *testing.T, out string) {
	t.Helper()
	found := exposure.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("no exposure in %s", out)
	}
	if level, err := strconv.ParseFloat(found[1], 64); err != nil || level >= most {
		t.Errorf("%s, and it has to be below %.1f", found[0], most)
	}
}
