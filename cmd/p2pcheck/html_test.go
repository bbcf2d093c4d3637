// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// isPage reports a whole page that has these words.
func isPage(text string, words ...string) bool {
	for _, w := range append(words, "Content-Security-Policy") {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return strings.HasPrefix(text, "<!doctype html>") && strings.HasSuffix(text, "</html>\n")
}

func fileText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// --html writes a page beside the text, which stays as it is.
func TestHTML(t *testing.T) {
	tree := testenv.Machines["small-hgx"]()
	there := t.TempDir()
	file := filepath.Join(there, "page.html")
	plain := run(tree, t, "--root", "ROOT")
	r := run(tree, t, "--root", "ROOT", "--html", file)
	if r.out != plain.out || r.status != plain.status || r.err != plain.err {
		t.Errorf("%+v, without --html %+v", r, plain)
	}
	if text := fileText(t, file); !isPage(text, "0000:13:00.0", "mlx5_0", "GPUs and NICs of ROOT", "pairs direct") {
		t.Errorf("%.2000s", text)
	}
	if r := run(tree, t, "--root", "ROOT", "--html", "-"); !isPage(r.out) || r.status != plain.status {
		t.Errorf("%d: %.300s", r.status, r.out)
	}
	// The text or the document can go to a file, and the page to the standard output.
	document := filepath.Join(there, "run.json")
	if r := run(tree, t, "--root", "ROOT", "--html", "-", "--json", "-o", document); !isPage(r.out) || !strings.Contains(fileText(t, document), `"schema"`) {
		t.Errorf("%+v", r)
	}
	left, err := os.ReadDir(there)
	if err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
}

// A page replaces a regular file, also behind a link, and nothing else.
func TestHTMLReplaces(t *testing.T) {
	tree := testenv.Machines["small-hgx"]()
	there := t.TempDir()
	in := func(name string) string { return filepath.Join(there, name) }
	if err := os.WriteFile(in("old"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("old", in("link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(in("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(tree, t, "--root", "ROOT", "--html", in("link")); r.err != "" || !isPage(fileText(t, in("old"))) {
		t.Errorf("%+v", r)
	}
	if to, err := os.Readlink(in("link")); err != nil || to != "old" {
		t.Error(to, err)
	}
	if st, err := os.Stat(in("old")); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st.Mode(), err)
	}
	for _, c := range []struct{ name, want string }{
		{there, "a directory"}, {in("fifo"), "a FIFO"}, {os.DevNull, "a device"}, {in("none/page.html"), "make its directory"}, {in("old/page.html"), "not a directory"}, {"", "needs a file"},
	} {
		for _, args := range [][]string{{"--root", "ROOT", "--html", c.name}, {"report", in("run.json"), "--html", c.name}} {
			if args[0] == "report" {
				saved(t, there, "run", tree)
			}
			r := run(tree, t, args...)
			if r.status != cli.ExitUsage || !strings.Contains(flat(r.err), c.want) {
				t.Errorf("%q: %d, %s", args, r.status, r.err)
			}
		}
	}
	if text := fileText(t, in("old")); !isPage(text) {
		t.Error("a file was changed by a run that failed")
	}
	// Nothing could be read: the old page stays.
	before := fileText(t, in("old"))
	if r := command("--root", in("none"), "--html", in("old")); r.status != cli.ExitUsage || fileText(t, in("old")) != before {
		t.Errorf("%+v", r)
	}
}

func TestHTMLMistakes(t *testing.T) {
	tree := testenv.Machines["small-hgx"]()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--root", "ROOT", "--html", "-", "--json"}, "cannot both have the standard output"},
		{[]string{"--root", "ROOT", "--html", "-", "--format", "nagios"}, "cannot both have the standard output"},
		{[]string{"topo", "--root", "ROOT", "--html", "x"}, "unknown flag"},
		{[]string{"report", "x.json", "--since", ""}, "needs a file or a directory"},
		{[]string{"report", "none.json", "--html", "x"}, "none.json"},
	} {
		if r := run(tree, t, c.args...); r.status == cli.ExitOK || !strings.Contains(flat(r.err+r.out), c.want) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
}

// The page of a snapshot names no directory of this machine, and devices by this machine's pci.ids.
func TestHTMLOfSnapshot(t *testing.T) {
	ids := filepath.Join(t.TempDir(), "pci.ids")
	if err := os.WriteFile(ids, []byte("1002  A vendor\n\t74a1  A GPU <b>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"page": {"--html", "-"}, "tree": {"topo", "-v"}} {
		var out, errs strings.Builder
		a := &app{stdout: &out, stderr: &errs, ids: []string{ids}}
		a.run(append(args, "--snapshot", "testdata/testbed/default.tar.gz"))
		if out.Len() < 200 || a.source.Root == "" || strings.Contains(out.String(), a.source.Root) {
			t.Errorf("%s: %q: %s", name, a.source.Root, errs.String())
		}
	}
	tree := machineTree(server, "0x00")
	for _, c := range []struct {
		ids  []string
		args []string
		want bool
	}{
		{[]string{ids}, []string{"topo", "-v"}, true}, {[]string{ids}, []string{"topo"}, false}, {nil, []string{"topo", "-v"}, false}, {[]string{ids + ".none"}, []string{"topo", "-v"}, false},
	} {
		var out, errs strings.Builder
		a := &app{stdout: &out, stderr: &errs, ids: c.ids}
		a.run(append(c.args, "--root", tree.Write(t)))
		if strings.Contains(out.String(), "GPU amdgpu 1002:74a1 A vendor A GPU <b>, ") != c.want || !strings.Contains(out.String(), "1002:74a1") || errs.Len() > 0 {
			t.Errorf("%q %q: %s %s", c.ids, c.args, &out, &errs)
		}
	}
	// A file that cannot be read is named, and the numbers stay.
	var out, errs strings.Builder
	a := &app{stdout: &out, stderr: &errs, ids: []string{t.TempDir()}}
	if status := a.run([]string{"topo", "-v", "--root", tree.Write(t)}); status != cli.ExitOK || !strings.Contains(errs.String(), "have their numbers only") || !strings.Contains(out.String(), "1002:74a1") {
		t.Errorf("%d: %s", status, &errs)
	}
}

// report --since says of each node what became different, in the text, the document and the page.
func TestReportSince(t *testing.T) {
	was, is := t.TempDir(), t.TempDir()
	for _, node := range []string{"node0", "node1", "gone"} {
		saved(t, was, node, testenv.Machines["small-hgx"]())
	}
	saved(t, is, "node0", testenv.Machines["small-hgx"]())
	saved(t, is, "node1", bad())
	saved(t, is, "new", testenv.Machines["small-hgx"]())
	page := filepath.Join(t.TempDir(), "page.html")
	r := command("report", is, "--since", was, "--html", page)
	for _, want := range []string{"node1 differs from the earlier run", "worse", "1 node of the earlier run without a run now: gone"} {
		if !strings.Contains(flat(r.out), want) {
			t.Errorf("no %q in %s", want, r.out)
		}
	}
	if r.status != cli.ExitFailed || strings.Contains(r.out, "node0 differs from the earlier run") || strings.Contains(flat(r.out), "new differs from the earlier run") {
		t.Errorf("%d: %s", r.status, r.out)
	}
	if text := fileText(t, page); !isPage(text, "GPUs and NICs of 3 nodes", `"gone"`) {
		t.Errorf("%.1000s", text)
	}
	document := command("report", is, "--since", was, "--json").out
	if strings.Count(document, `"since": [`) != 2 || !strings.Contains(document, `"gone": [`) {
		t.Error(document)
	}
	// The same nodes without a difference are good.
	if r := command("report", filepath.Join(is, "node0.json"), "--since", filepath.Join(was, "node0.json")); r.status != cli.ExitOK {
		t.Errorf("%+v", r)
	}
	// A node that has no run now is not known.
	if r := command("report", filepath.Join(is, "node0.json"), "--since", was); r.status != cli.ExitUnavailable || !strings.Contains(flat(r.out), "2 nodes of the earlier run") {
		t.Errorf("%+v", r)
	}
	// An earlier run that cannot be read is named.
	if err := os.WriteFile(filepath.Join(was, "node0.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := command("report", filepath.Join(is, "node0.json"), "--since", was); r.status != cli.ExitUnavailable || !strings.Contains(flat(r.out), "node0: the earlier run cannot be read") {
		t.Errorf("%+v", r)
	}
	for _, from := range []string{filepath.Join(was, "gone.json"), filepath.Join(was, "none"), t.TempDir()} {
		if r := command("report", filepath.Join(is, "node0.json"), "--since", from); r.status != cli.ExitUsage || !strings.Contains(r.err, "--since") {
			t.Errorf("%s: %+v", from, r)
		}
	}
}
