// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/result"
)

// redirecting is a server of 8 GPUs and 8 NICs whose switches redirect, and whose
// root is not trusted.
func redirecting() testenv.Tree {
	tree := testenv.MI300()
	tree.CPU = testenv.Xeon
	tree.Functions = strings.ReplaceAll(tree.Functions, "acs=0x00", "acs=0x1d")
	return tree
}

// 64 pairs that are not direct for two reasons come in two groups, with the change once.
func TestGroups(t *testing.T) {
	r := run(redirecting(), t, "--root", "ROOT")
	golden(t, "machine-redirecting.txt", r.out)
	if n := strings.Count(r.out, "\nSTAGED  "); n != 2 {
		t.Errorf("%d groups", n)
	}
	if n := strings.Count(r.out, "GRUB_CMDLINE_LINUX"); n != 1 {
		t.Errorf("the remedy is told %d times", n)
	}
	// Nothing is left out of -v: each port is named.
	all := run(redirecting(), t, "-v", "--root", "ROOT").out
	for _, port := range []string{"12:00.0", "42:01.0", "72:02.0", "a2:03.0"} {
		if !strings.Contains(all, "  ACS redirect at 0000:"+port) {
			t.Errorf("%s is not named", port)
		}
	}
}

// "As above" is said only of a command that is above, in full.
func TestAsAbove(t *testing.T) {
	const words = "  change: as above: "
	said := 0
	for _, pattern := range []string{"testdata/*.txt", "testdata/testbed/*.txt"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var above []string // commands
			for line := range strings.Lines(string(text)) {
				line = strings.TrimRight(line, "\n")
				if strings.HasPrefix(line, "$ ") {
					above = nil
				}
				if command, ok := strings.CutPrefix(line, "          "); ok {
					above = append(above, command)
				}
				if command, ok := strings.CutPrefix(line, words); ok {
					said++
					start, cut := strings.CutSuffix(command, "…")
					if !slices.ContainsFunc(above, func(a string) bool { return a == command || cut && strings.HasPrefix(a, start) }) {
						t.Errorf("%s: %q is not above", file, command)
					}
				}
			}
		}
	}
	if said == 0 {
		t.Error("no golden says it")
	}
}

// The text has the ID of each check that the JSON reports.
func TestIDsInText(t *testing.T) {
	machines := maps.Clone(testenv.Machines)
	machines["bad"], machines["redirecting"] = bad, redirecting
	machines["server"] = func() testenv.Tree { return machineTree(server+others, "0x1d") }
	for name, machine := range machines {
		var d struct{ Result result.Run }
		if err := json.Unmarshal([]byte(run(machine(), t, "--json", "--root", "ROOT").out), &d); err != nil {
			t.Fatal(err)
		}
		text := run(machine(), t, "--root", "ROOT").out
		for _, f := range d.Result.Checks {
			if (f.Result == "fail" || f.Result == "warn" || f.Result == "unknown" && f.Decides) && !strings.Contains(text, f.ID) {
				t.Errorf("%s: %s of %s is not in the text", name, f.Result, f.ID)
			}
		}
	}
}

// A machine without a pair does not read as one that is good.
func TestNoPairText(t *testing.T) {
	noNIC := testenv.Machines["small-hgx"]()
	noNIC.Functions = strings.NewReplacer(" rdma:mlx5_0", "", " rdma:mlx5_1", "").Replace(noNIC.Functions)
	maps.DeleteFunc(noNIC.Files, func(name, _ string) bool { return strings.Contains(name, "/infiniband/") })
	noGPU := testenv.Machines["small-hgx"]()
	noGPU.Functions = strings.ReplaceAll(noGPU.Functions, "class=0x030200", "class=0x010700")
	for name, c := range map[string]struct {
		tree testenv.Tree
		says []string
	}{
		"no GPU":  {noGPU, []string{"no pair to check: no GPU", "NICs: mlx5_0 mlx5_core, mlx5_1 mlx5_core"}},
		"no NIC":  {noNIC, []string{"no pair to check: no RDMA device", "GPUs: 0000:13:00.0 nvidia, 0000:15:00.0 nvidia"}},
		"neither": {testenv.Worker("vendor=0x8086 device=0x100e driver:e1000e"), []string{"no pair to check: no GPU with memory of its own, no RDMA device", "GPUs: 0000:00:02.0 ast", "NICs: none"}},
	} {
		for _, args := range [][]string{{"--root", "ROOT"}, {"-v", "--root", "ROOT"}} {
			r := run(c.tree, t, args...)
			for _, want := range c.says {
				if r.status == cli.ExitOK || !strings.Contains(r.out, want) {
					t.Errorf("%s: status %d, and no %q: %s", name, r.status, want, r.out)
				}
			}
			// The last line alone says it, too.
			lines := strings.Split(strings.TrimSpace(r.out), "\n")
			if last := lines[len(lines)-1]; !strings.Contains(last, "no pair to check") {
				t.Errorf("%s: %s", name, last)
			}
		}
	}
	if r := run(noGPU, t, "topo", "--root", "ROOT"); !strings.Contains(r.out, "\nno pair: no GPU") {
		t.Error(r.out)
	}
}
