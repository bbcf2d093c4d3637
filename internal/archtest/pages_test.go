// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurdma/gpurdma/internal/human"
	"github.com/gpurdma/gpurdma/internal/pagetest"
)

// README.md is short enough to be read.
func TestReadmeIsShort(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "\n"); n > 100 {
		t.Errorf("README.md has %d lines, of at most 100", n)
	}
}

// The blocks of README.md and of the tutorials fit a terminal.
func TestBlocksFit(t *testing.T) {
	dir, n := root(t), 0
	for _, name := range tracked(t, "README.md", "docs/tutorials/*.md") {
		for _, b := range pagetest.Read(t, filepath.Join(dir, name)).Blocks {
			if n++; b.Lang == "go" {
				continue // gofmt's business
			}
			for i, line := range strings.Split(b.Text, "\n") {
				if width := utf8.RuneCountInString(line); width > human.Columns {
					t.Errorf("%s:%d has %d columns", name, b.Line+i, width)
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d blocks", n)
	}
}

var (
	makeRule   = regexp.MustCompile(`(?m)^([a-z][a-z0-9 -]*):`)
	makeInText = regexp.MustCompile("`make ([a-z][a-z0-9-]*)")
	makeInStep = regexp.MustCompile(`\bmake(?: -s)? ([a-z][a-z0-9-]*)`)
)

// Each target of make that a page names exists.
func TestMakeTargetsExist(t *testing.T) {
	dir := root(t)
	var known []string
	for _, name := range tracked(t, "Makefile", "mk/*.mk") {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range makeRule.FindAllStringSubmatch(string(data), -1) {
			known = append(known, strings.Fields(m[1])...)
		}
	}
	n := 0
	for _, name := range tracked(t, "*.md") {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range makeInText.FindAllStringSubmatch(string(data), -1) {
			n++
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s names `make %s`, which the Makefile does not have", name, m[1])
			}
		}
		for _, s := range pagetest.Parse(name, string(data)).Steps() {
			for _, m := range makeInStep.FindAllStringSubmatch(s.Command, -1) {
				n++
				if !slices.Contains(known, m[1]) {
					t.Errorf("%s:%d: %s: the Makefile has no %s", name, s.Line, s.Command, m[1])
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d targets", n)
	}
}

var (
	// shellLine is a command in a block that has no output.
	shellLine = regexp.MustCompile(`^(?:make|kubectl|p2pcheck|dmabuf-reg|slurm-p2p|sudo|install|lspci|go|podman|docker|skopeo|systemctl|apt|dnf|scontrol)\s`)
	// explained is such a line with words behind it that the shell would take for arguments.
	explained = regexp.MustCompile(`\S {2,}[^#\s\\]`)
)

// copied returns the lines of a page that do not work when they are copied: a command with its explanation behind it,
// and no # between.
func copied(p pagetest.Page, text string) (wrong []string) {
	blocks := p.Of("sh")
	blocks = append(blocks, p.Of("")...)
	fenced := ""
	for _, b := range p.Blocks {
		fenced += b.Text
	}
	for line := range strings.Lines(text) {
		if code, ok := strings.CutPrefix(line, "    "); ok && !strings.Contains(fenced, line) {
			blocks = append(blocks, pagetest.Block{Text: code})
		}
	}
	for _, b := range blocks {
		for line := range strings.Lines(b.Text) {
			line = strings.TrimRight(line, "\n")
			if shellLine.MatchString(line) && explained.MatchString(line) {
				wrong = append(wrong, line)
			}
		}
	}
	return wrong
}

// What stands behind a command in a block is a comment, so that the line can be copied as a whole.
func TestCommandsCanBeCopied(t *testing.T) {
	dir := root(t)
	for _, name := range tracked(t, "*.md") {
		if strings.HasPrefix(name, "docs/reference/commands/") {
			continue // a synopsis of flags
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range copied(pagetest.Parse(name, string(data)), string(data)) {
			t.Errorf("%s: no # before the explanation in: %s", name, line)
		}
	}
	const page = "    make image   the image\n    make image   # the image\n```sh\nkubectl get   all of it\nkubectl get \\\n```\n```console\n$ p2pcheck\np2pcheck  a table\n```\n"
	if wrong := copied(pagetest.Parse("x.md", page), page); len(wrong) != 2 {
		t.Errorf("found %q", wrong)
	}
}
