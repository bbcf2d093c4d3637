// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// wide are the lines of a text that do not fit a screen. Commands and lines of the log are not
// folded: a reader copies them.
func wide(text string) (out []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		command := strings.HasPrefix(line, strings.Repeat(" ", 10)) || strings.HasPrefix(line, "  change: as above: ") || strings.HasPrefix(line, "  meanwhile: ")
		if utf8.RuneCountInString(line) > human.Columns && !command {
			out = append(out, line)
		}
	}
	return out
}

// A wide line is found, and a command is none.
func TestWide(t *testing.T) {
	long := strings.Repeat("x ", 60)
	text := "  " + long + "\n          pci=" + strings.Repeat("0", 120) + "\n  change: " + long + "\n  meanwhile: " + long + "\n" + strings.Repeat("x", human.Columns) + "\n"
	if got := wide(text); len(got) != 2 || got[0] != "  "+long || got[1] != "  change: "+long {
		t.Errorf("%q", got)
	}
}

// The texts of testdata fit a screen.
func TestGoldensFit(t *testing.T) {
	files, err1 := filepath.Glob("testdata/*.txt")
	more, err2 := filepath.Glob("testdata/testbed/*.txt")
	if err1 != nil || err2 != nil || len(files) < 15 || len(more) < 12 {
		t.Fatal(files, more, err1, err2)
	}
	for _, file := range append(files, more...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if got := wide(text); len(got) > 0 {
			t.Errorf("%s: %d lines are wider than %d columns: %q", file, len(got), human.Columns, got)
		}
	}
}

// The report on any machine of the corpus fits a screen, however many devices it has.
func TestCorpusFits(t *testing.T) {
	testenv.Exhaustive(t)
	n := 0
	for i, c := range testenv.Corpus(t) {
		if testing.Short() && i%16 > 0 {
			continue
		}
		n++
		for _, args := range [][]string{{"--root", "ROOT"}, {"--root", "ROOT", "-v"}} {
			if got := wide(run(c.Tree, t, args...).out); len(got) > 0 {
				t.Errorf("%s %q: %d lines are wider than %d columns: %q", c.Name, args, len(got), human.Columns, got)
			}
		}
	}
	if n == 0 {
		t.Error("no machine")
	}
}

// A machine with more NICs than fit has them one part below the other, each with all GPUs.
func TestMatrixInParts(t *testing.T) {
	tree := testenv.HGX()
	lines := strings.SplitAfter(tree.Functions, "\n")
	for i := range 12 {
		lines = append(lines, fmt.Sprintf("pci0000:10/0000:10:%02x.0 class=0x020000 vendor=0x15b3 device=0x1021 driver:mlx5_core rdma:mlx5_%d numa_node=0\n", i+2, i+8))
	}
	tree.Functions = strings.Join(lines, "")
	r := run(tree, t, "--root", "ROOT", "--skip", "all")
	if got := wide(r.out); len(got) > 0 {
		t.Errorf("%q", got)
	}
	var heads []string
	for line := range strings.Lines(r.out) {
		if strings.HasPrefix(line, "GPU ") {
			heads = append(heads, line)
		}
	}
	if len(heads) < 3 || strings.Count(strings.Join(heads, ""), "mlx5_") != 20 || strings.Count(r.out, "\n13:00.0 ") != len(heads) {
		t.Errorf("%q: %s", heads, r.out)
	}
}

// inContainer is a server as a user sees it in a container that gives it nothing.
func inContainer() testenv.Tree {
	tree := testenv.HGX()
	var lines []string
	for line := range strings.Lines(tree.Functions) {
		lines = append(lines, strings.TrimSuffix(line, "\n")+" config=64\n")
	}
	tree.Functions = strings.Join(lines, "")
	tree.Files["proc/self/status"] = "Name:\tp2pcheck\nCapEff:\t0000000000000000\n"
	tree.Files[".dockerenv"] = ""
	delete(tree.Files, "dev/kmsg")
	return tree
}

// A new user finds on the first screen what to do next.
func TestFirstScreen(t *testing.T) {
	const screen = 40 // lines
	for name, c := range map[string]struct {
		tree   testenv.Tree
		status int
		says   []string
	}{
		"no GPU":                    {testenv.Worker("vendor=0x8086 device=0x100e driver:e1000e"), cli.ExitUnavailable, []string{"no pair to check: no GPU with memory of its own, no RDMA device", "next: p2pcheck looks for GPUs", "        p2pcheck snapshot FILE      there"}},
		"no list of RDMA devices":   {unlisted(), cli.ExitUnavailable, []string{"no pair to check: the devices could not all be read (list RDMA devices on", "NICs: none that could be read", "next: take the copy again, as root"}},
		"a host of guests":          {corpusTree(t, "case-13-vfio-host"), cli.ExitUnavailable, []string{"no pair to check: no RDMA device on the host, which gives its NICs to guests", "NICs: 0000:14:00.0 of a guest", "next: run p2pcheck in the guest, too"}},
		"a server":                  {testenv.HGX(), cli.ExitOK, []string{"64 pairs: 64 direct", "next: prove it on the machine itself, as root:\n        p2pcheck --live\n"}},
		"a server that stages":      {redirecting(), cli.ExitFailed, []string{"STAGED  0000:13:00.0", "  change: let the ports on the way pass peer-to-peer traffic", "          pci=disable_acs_redir=0000:12:00.0;"}},
		"a container, without root": {inContainer(), cli.ExitUnavailable, []string{"UNKNOWN  0000:13:00.0", "read: run as root", "  change: take the copy again, as root", "next: the changes above. Each link of a pair, and what it rests on:\n        p2pcheck why 0000:13:00.0 mlx5_0 --root "}},
	} {
		r := run(c.tree, t, "--root", "ROOT")
		lines := strings.SplitAfter(r.out, "\n")
		first := strings.Join(lines[:min(screen, len(lines))], "")
		for _, want := range c.says {
			if r.status != c.status || !strings.Contains(first, want) {
				t.Errorf("%s: status %d, and no %q on the first screen: %s", name, r.status, want, first)
			}
		}
	}
}

// unlisted is a machine whose RDMA devices cannot be listed.
func unlisted() testenv.Tree {
	tree := testenv.Worker("vendor=0x8086 device=0x100e driver:e1000e")
	tree.Texts = map[string]string{"sys/class/infiniband": "infiniband"} // a link to itself
	return tree
}

// No output says that a device is absent if it could not be read.
func TestUnlisted(t *testing.T) {
	for _, args := range [][]string{{}, {"topo"}} {
		r := run(unlisted(), t, append(args, "--root", "ROOT")...)
		if r.status != cli.ExitUnavailable || strings.Contains(r.err, "no RDMA device was found") || !strings.Contains(r.out+r.err, "could") && !strings.Contains(r.err, "too many levels") {
			t.Errorf("%v: %d, %s%s", args, r.status, r.out, r.err)
		}
		if len(args) > 0 && !strings.Contains(r.out, "and not all devices could be read") {
			t.Errorf("%v: %s", args, r.out)
		}
	}
}

// corpusTree is the tree of a machine of the corpus.
func corpusTree(t *testing.T, name string) testenv.Tree {
	t.Helper()
	return testenv.CorpusNamed(t, name).Tree
}
