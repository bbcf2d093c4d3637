// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestReport(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for i := range 3 {
		files = append(files, saved(t, dir, fmt.Sprintf("node%d", i), testenv.Machines["small-hgx"]()))
	}
	if r := command(append([]string{"report"}, files...)...); r.status != cli.ExitOK || !strings.Contains(r.out, "3 nodes, 1 kind of them") {
		t.Errorf("%+v", r)
	}
	// Not all that could not be read is in the result: the status has it.
	text, err := os.ReadFile(files[2])
	if err != nil {
		t.Fatal(err)
	}
	unread := filepath.Join(dir, "unread.json")
	if err := os.WriteFile(unread, bytes.Replace(text, []byte(`"exit_status": 0`), []byte(`"exit_status": 3`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := command("report", files[0], unread); r.status != cli.ExitUnavailable || !strings.Contains(r.out, "unknown") {
		t.Errorf("%+v", r)
	}
	files = append([]string{saved(t, dir, "broken", bad())}, files...)
	r := command(append([]string{"report"}, files...)...)
	if r.status != cli.ExitFailed {
		t.Error(r.status)
	}
	golden(t, "report.txt", r.out)
	var d struct{ Result reportResult }
	if err := json.Unmarshal([]byte(command(append([]string{"report", "--json"}, files...)...).out), &d); err != nil {
		t.Fatal(err)
	}
	if n := d.Result.Nodes; len(n) != 4 || n[0].Node != "broken" || n[0].Result != "fail" || len(n[0].Differs) == 0 || len(n[1].Differs) != 0 || d.Result.Like != "node0" {
		t.Errorf("%+v", d.Result)
	}
}

// A FIFO that lies among the files of a directory keeps nothing waiting: its node is unknown. One that is named is read.
func TestReportOfFIFOs(t *testing.T) {
	dir, named := t.TempDir(), filepath.Join(t.TempDir(), "node2")
	file := saved(t, dir, "node0", testenv.Machines["small-hgx"]())
	for _, name := range []string{filepath.Join(dir, "node1.json"), named} {
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(named, text, 0) }()
	r := command("report", dir, named)
	if r.status != cli.ExitUnavailable || !strings.Contains(r.err, "node1.json is a FIFO, and no regular file") || !strings.Contains(r.out, "3 nodes") || strings.Count(r.out, "its file cannot be read") != 1 {
		t.Errorf("%+v", r)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

// A node whose file cannot be read hides nothing of the others, and is not good.
func TestReportOfBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, "node0", testenv.Machines["small-hgx"]())
	if err := os.WriteFile(filepath.Join(dir, "node1.json"), []byte("ssh: connection refused\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := command("report", dir)
	if r.status != cli.ExitUnavailable || !strings.Contains(r.out, "2 nodes") || !strings.Contains(r.out, "its file cannot be read") || !strings.Contains(r.err, "node1.json") {
		t.Errorf("%+v", r)
	}
	var d struct{ Result reportResult }
	if err := json.Unmarshal([]byte(command("report", "--json", dir).out), &d); err != nil {
		t.Fatal(err)
	}
	if n := d.Result.Nodes; len(n) != 2 || n[0].Node != "node1" || n[0].Result != "unknown" || n[0].Error == "" || n[1].Node != "node0" || n[1].Result != "pass" || d.Result.Like != "node0" {
		t.Errorf("%+v", d.Result)
	}
	saved(t, dir, "node2", bad())
	if r := command("report", dir); r.status != cli.ExitFailed || !strings.Contains(r.out, "node2 differs from node0") {
		t.Errorf("%+v", r)
	}
	good := filepath.Join(dir, "node0.json")
	for _, args := range [][]string{{filepath.Join(dir, "node1.json")}, {good, good}, {t.TempDir()}, {filepath.Join(dir, "none")}} {
		if r := command(append([]string{"report"}, args...)...); r.status != cli.ExitUsage || r.err == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// The report names a cause once, with the nodes that have it.
func TestReportOfCauses(t *testing.T) {
	dir := t.TempDir()
	for i := range 12 {
		saved(t, dir, fmt.Sprintf("node%02d", i), testenv.Machines["small-hgx"]())
	}
	for i := range 10 {
		saved(t, dir, fmt.Sprintf("worse%d", i), bad())
	}
	less := testenv.Machines["small-hgx"]()
	less.Functions = strings.Replace(less.Functions, " rdma:mlx5_1", "", 1)
	saved(t, dir, "less", less)
	for _, name := range []string{"grace", "flat-vm", "mi300"} {
		saved(t, dir, name, testenv.Machines[name]())
	}
	r := command("report", dir)
	if r.status != cli.ExitFailed {
		t.Error(r.status)
	}
	golden(t, "report-fleet.txt", r.out)
	head, _, _ := strings.Cut(r.out, "\n")
	if w := command("report", dir, "--wide"); !strings.Contains(w.out, "GPUS") || strings.Contains(head, "GPUS") || !strings.Contains(r.out, "not shown: GPUS, NICS, KERNEL (--wide") || strings.Contains(w.out, "not shown") {
		t.Errorf("--wide:\n%s", w.out)
	}
}

// Among kinds with equally many nodes the best kind is the norm, whatever the nodes' names, and the report
// names its node.
func TestReportOfEquals(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, "a-bad", bad())
	good := saved(t, dir, "z-good", testenv.Machines["small-hgx"]())
	r := command("report", dir)
	if r.status != cli.ExitFailed || !strings.Contains(r.out, "DIFFERS FROM z-good\n") || !strings.Contains(r.out, "a-bad differs from z-good") || !strings.Contains(r.out, "no kind is that of most: compared with z-good") {
		t.Errorf("%+v", r)
	}
	if r := command("report", good); strings.Contains(r.out, "no kind") {
		t.Errorf("%+v", r)
	}
}

// A node that lost its GPUs differs from the norm, even if it fails no check, or if most nodes are like it.
func TestReportOfBareNodes(t *testing.T) {
	bare := testenv.Machines["small-hgx"]()
	bare.Functions = strings.ReplaceAll(bare.Functions, "class=0x030200", "class=0x010700")
	good := testenv.Machines["small-hgx"]()
	const most, equal = "2 kinds of them\n", "; no kind is that of most: compared with node0, the best of the largest\n"
	for name, c := range map[string]struct {
		nodes []testenv.Tree // the first is what the others are compared with
		says  string
	}{
		"one healthy":      {[]testenv.Tree{good, bare}, equal},
		"two healthy":      {[]testenv.Tree{good, good, bare}, most},
		"one that fails":   {[]testenv.Tree{bad(), bare}, equal},
		"most are bare":    {[]testenv.Tree{good, bare, bare}, "; a larger kind has no pair that counts: compared with node0, the best of the largest that have\n"},
		"fails, most bare": {[]testenv.Tree{bad(), bare, bare}, "; a larger kind has no pair that counts: compared with node0, the best of the largest that have\n"},
	} {
		dir := t.TempDir()
		for i, tree := range c.nodes {
			saved(t, dir, fmt.Sprintf("node%d", i), tree)
		}
		r := command("report", dir)
		last := len(c.nodes) - 1
		if r.status != cli.ExitFailed || !strings.HasSuffix(flat(r.out), flat(c.says)) || !strings.Contains(r.out, fmt.Sprintf("node%d differ", last)) || !strings.Contains(r.out, "  worse    gpu 0000:13:00.0: not there, was nvidia (") {
			t.Errorf("%s: %+v", name, r)
		}
		var d struct{ Result reportResult }
		if err := json.Unmarshal([]byte(command("report", "--json", dir).out), &d); err != nil || d.Result.Like != "node0" {
			t.Errorf("%s: %q, %v", name, d.Result.Like, err)
		}
	}
	// Where there is no other, they are alike.
	dir := t.TempDir()
	saved(t, dir, "node0", bare)
	saved(t, dir, "node1", bare)
	if r := command("report", dir); r.status != cli.ExitUnavailable || !strings.HasSuffix(r.out, "2 nodes, 1 kind of them\n") {
		t.Errorf("%+v", r)
	}
}
