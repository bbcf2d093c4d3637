// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// saved is the JSON of a machine.
func saved(t *testing.T, dir, name string, tree testenv.Tree) string {
	t.Helper()
	file := filepath.Join(dir, name+".json")
	if r := command("--json", "--output", file, "--root", tree.Write(t)); r.out != "" {
		t.Fatal(r)
	}
	return file
}

func TestDiffAndBaseline(t *testing.T) {
	dir := t.TempDir()
	good := saved(t, dir, "good", testenv.Machines["small-hgx"]())
	worse := saved(t, dir, "worse", bad())
	if r := command("diff", good, good); r.status != cli.ExitOK || r.out != "0 differences\n" {
		t.Errorf("%+v", r)
	}
	r := command("diff", good, worse)
	for _, want := range []string{"check NV-MODTYPE: fail, was pass", "check P2P-ACS-LIST 0000:13:00.0 -> mlx5_0: warn, was pass"} {
		if r.status != cli.ExitFailed || !strings.Contains(r.out, want) {
			t.Errorf("%q is not there: %+v", want, r)
		}
	}
	root := testenv.Machines["small-hgx"]().Write(t)
	if r := command("--baseline", good, "--root", root); r.status != cli.ExitOK || !strings.Contains(r.out, "0 differences") {
		t.Errorf("%+v", r)
	}
	// The text reports what is better, and the command does not fail.
	if r := command("--baseline", worse, "--root", root); r.status != cli.ExitOK || !strings.Contains(r.out, "better   check NV-MODTYPE: pass, was fail") || strings.Contains(r.out, " worse") {
		t.Errorf("%+v", r)
	}
	if r := command("--baseline", worse, "--root", root, "--format", "nagios"); r.status != 0 || !strings.HasPrefix(r.out, "P2PCHECK OK - 4 of 4 pairs direct |") {
		t.Errorf("%+v", r)
	}
	// The line names the first difference that is worse.
	if r := command("--baseline", good, "--root", bad().Write(t), "--format", "nagios"); r.status != 2 || !strings.Contains(r.out, "; worse than its baseline: pair 0000:13:00.0 -> mlx5_0: refused, through the host bridge PIX, was direct, bus address PIX and 13 more") {
		t.Errorf("%+v", r)
	}
	// A device that came and one that went.
	less := testenv.Machines["small-hgx"]()
	less.Functions = strings.Replace(less.Functions, " rdma:mlx5_1", "", 1)
	if r := command("diff", good, saved(t, dir, "less", less)); r.status != cli.ExitFailed || !strings.Contains(r.out, "worse    nic mlx5_1: not there, was mlx5_core at 0000:16:00.0 (dynamic)") {
		t.Errorf("%+v", r)
	}
	for _, text := range []string{"", "{}", `{"schema":"p2pcheck/v1","command":"topo","result":{}}`, `{"schema":"p2pcheck/v1","command":"check"}`, `{"schema":"p2pcheck/v1","command":"check","result":{"pairs":[{"outcome":"odd"}]}}`,
		`{"schema":"p2pcheck/v2","command":"topo","result":{}}`, `{"schema":"p2pcheck/v2","command":"check"}`, `{"schema":"p2pcheck/v2","command":"check","result":{"pairs":[{"outcome":"odd","links":[{}]}]}}`, `{"schema":"p2pcheck/v2","command":"check","result":{"pairs":[{"outcome":"direct"}]}}`,
	} {
		file := filepath.Join(dir, "odd")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"diff", good, file}, {"--baseline", file, "--root", root}, {"report", file}, {"diff", good, dir}} {
			if r := command(args...); r.status != cli.ExitUsage || r.err == "" {
				t.Errorf("%q: %+v", text, r)
			}
		}
	}
}

// Checks that only one of two runs has are not compared: --skip left them out, or another version of
// p2pcheck does not have them.
func TestUncompared(t *testing.T) {
	dir := t.TempDir()
	root := testenv.Machines["small-hgx"]().Write(t)
	whole, part := filepath.Join(dir, "whole"), filepath.Join(dir, "part")
	command("--json", "-o", whole, "--root", root)
	command("--json", "-o", part, "--root", root, "--skip", "NET,KRN-BTF")
	for _, args := range [][]string{{"diff", whole, part}, {"diff", part, whole}, {"--baseline", part, "--root", root}} {
		r := command(args...)
		if r.status != cli.ExitOK || !strings.Contains(r.out, "0 differences") || !strings.Contains(r.out, "7 checks not compared: one of the two runs") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	// Nor what does not apply to one of two machines.
	without := testenv.Machines["small-hgx"]()
	without.Release = "6.18.1"
	r := command("diff", whole, saved(t, dir, "older", without))
	if strings.Contains(r.out, "skip") || !strings.Contains(r.out, "changed  machine kernel: 6.18.1") {
		t.Errorf("%+v", r)
	}
}
