// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// No command line destroys a file that it is to read, right or wrong as it may be otherwise.
func TestOutputIsNoInput(t *testing.T) {
	snapshot, root := taken(t, testenv.Machines["small-hgx"]())
	dir := t.TempDir()
	run := saved(t, dir, "x", testenv.Machines["small-hgx"]())
	saved(t, dir, "y", testenv.Machines["small-hgx"]())
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("01:00.0 text of lspci, or proofs, or a Pod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(run, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line string
		file string // that must stay
	}{
		{"--snapshot SNAPSHOT -o SNAPSHOT", snapshot},
		{"--snapshot SNAPSHOT --json -o SNAPSHOT", snapshot},
		{"--snapshot SNAPSHOT --format nagios -o SNAPSHOT", snapshot},
		{"--snapshot SNAPSHOT --format bogus -o SNAPSHOT", snapshot},
		{"--snapshot SNAPSHOT --html SNAPSHOT", snapshot},
		{"topo --snapshot SNAPSHOT -o SNAPSHOT", snapshot},
		{"why --snapshot SNAPSHOT 13:00.0 mlx5_0 -o SNAPSHOT", snapshot},
		{"serve --snapshot SNAPSHOT --nfd SNAPSHOT --listen 127.0.0.1:0", snapshot},
		{"--lspci TEXT -o TEXT", text},
		{"--lspci TEXT --html TEXT", text},
		{"--lspci SNAPSHOT --lspci-tree TEXT -o TEXT", text},
		{"--root ROOT --proofs TEXT -o TEXT", text},
		{"--root ROOT --container-spec TEXT -o TEXT", text},
		{"--root ROOT --config TEXT --html TEXT", text},
		{"--root ROOT --baseline RUN -o RUN", run},
		{"--root ROOT --baseline LINK -o RUN", run},
		{"--root ROOT --baseline RUN -o LINK --json", run},
		{"report RUN -o RUN", run},
		{"report RUN --html RUN", run},
		{"report RUN --json -o LINK", run},
		{"report DIR -o RUN", run},
		{"report DIR/y.json --since DIR -o RUN", run},
		{"report DIR/y.json --since RUN -o RUN", run},
		{"diff RUN DIR/y.json -o RUN", run},
		{"diff DIR/y.json RUN -o RUN", run},
		// Cobra refuses these, and of some it has not parsed all flags.
		{"-o SNAPSHOT --format nagios --bogus --snapshot SNAPSHOT", snapshot},
		{"--output=SNAPSHOT --format=prometheus --bogus --snapshot=SNAPSHOT", snapshot},
		{"--snapshot SNAPSHOT -oSNAPSHOT --format nagios extra", snapshot},
		{"report RUN -o RUN --format nagios", run},
		{"diff RUN -o RUN --format nagios", run},
	} {
		before, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.NewReplacer("SNAPSHOT", snapshot, "ROOT", root, "TEXT", text, "RUN", run, "LINK", link, "DIR", dir).Replace(c.line)
		r := command(strings.Fields(line)...)
		if after, err := os.ReadFile(c.file); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: the file is another: %v", c.line, err)
			if err := os.WriteFile(c.file, before, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		refused := strings.Contains(c.line, "bogus") || strings.Contains(c.line, "nagios") || strings.Contains(r.err+r.out, "is a file that is read (")
		if wrong := strings.Contains(c.line, "--format"); r.status != cli.ExitUsage && !wrong || !refused {
			t.Errorf("%s: %+v", c.line, r)
		}
	}
}

// An output beside the inputs, and one that replaces another file, are written.
func TestOutputBesideInputs(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir, "x", testenv.Machines["small-hgx"]())
	file := filepath.Join(dir, "new.txt")
	for range 2 {
		if r := command("report", dir, "-o", file, "--html", filepath.Join(dir, "page.html")); r.status != cli.ExitOK {
			t.Errorf("%+v", r)
		}
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "1 node") {
		t.Errorf("%q, %v", text, err)
	}
}

// A snapshot where a run is wanted: the error says what it is, and what makes a run of it.
func TestSnapshotIsNoRun(t *testing.T) {
	file, _ := taken(t, testenv.Machines["small-hgx"]())
	run := saved(t, t.TempDir(), "x", testenv.Machines["small-hgx"]())
	for _, args := range [][]string{{"report", file}, {"diff", file, run}, {"--snapshot", file, "--baseline", file}} {
		if r := command(args...); r.status != cli.ExitUsage || !strings.Contains(r.err, "it is a snapshot, and no run: `p2pcheck --snapshot FILE --json -o RUN.json`") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	again := filepath.Join(t.TempDir(), "run.json")
	if r := command("--snapshot", file, "--json", "-o", again); r.out != "" {
		t.Errorf("%+v", r)
	}
	if r := command("report", again); r.status == cli.ExitUsage {
		t.Errorf("%+v", r)
	}
}

func TestSinceThatIsNotThere(t *testing.T) {
	run := saved(t, t.TempDir(), "x", testenv.Machines["small-hgx"]())
	for _, since := range []string{"/nonexistent", "/nonexistent/x.json"} {
		if r := command("report", run, "--since", since); r.status != cli.ExitUsage || !strings.Contains(r.err, since+": no such file or directory") {
			t.Errorf("%s: %+v", since, r)
		}
	}
}

// --output names the archive as FILE does.
func TestSnapshotToOutput(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	file := filepath.Join(t.TempDir(), "machine.tar.gz")
	r := command("snapshot", "--root", root, "-o", file)
	if r.status != cli.ExitOK || !strings.HasPrefix(r.out, file+": ") {
		t.Errorf("%+v", r)
	}
	if r := command("--snapshot", file); r.status != cli.ExitOK {
		t.Errorf("%+v", r)
	}
	if r := command("snapshot", "--root", root, "-o", "-"); r.status != cli.ExitOK || !strings.HasPrefix(r.out, "\x1f\x8b") || !strings.HasPrefix(r.err, "standard output: ") {
		t.Errorf("%d %s", r.status, r.err)
	}
	if r := command("snapshot", "--root", root, file, "-o", file); r.status != cli.ExitUsage || !strings.Contains(r.err, "the archive is one file") {
		t.Errorf("%+v", r)
	}
	list := filepath.Join(t.TempDir(), "list")
	if r := command("snapshot", "--root", root, "--show", "-o", list); r.status != cli.ExitOK || r.out != "" {
		t.Errorf("%+v", r)
	}
	if text, err := os.ReadFile(list); err != nil || !strings.Contains(string(text), "could not be read") {
		t.Errorf("%q, %v", text, err)
	}
}

// The error of a flag without a value goes into no file, also where Cobra refuses the rest of the command line.
func TestNoFileNamedAfterAFlag(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, line := range []string{"-o --json --format nagios --frob", "--html -o x", "report x --html -o y", "snapshot -o --json --root x", "--output --nfd --format=prometheus"} {
		if r := command(strings.Fields(line)...); r.status == cli.ExitOK {
			t.Errorf("%s: %+v", line, r)
		}
		if made, err := os.ReadDir("."); err != nil || len(made) > 0 {
			t.Fatalf("%s: %v, %v", line, made, err)
		}
	}
}
