// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gpurdma/gpurdma/internal/pagetest"
)

// Lines parses each line of the documents that calls the command: the subcommand is there, and takes these
// flags and as many arguments. Nothing is run. There are at least so many lines.
func Lines(t *testing.T, command func() *cobra.Command, least int) {
	t.Helper()
	name, n := command().Name(), 0
	for _, page := range pages(t) {
		for _, args := range Calls(t, page, name) {
			n++
			if err := parses(command(), args); err != nil {
				t.Errorf("%s: %s %s: %v", page, name, strings.Join(args, " "), err)
			}
		}
	}
	if n < least {
		t.Errorf("only %d lines of the documents call %s", n, name)
	}
}

// Calls are the arguments of each call of a command in a document.
func Calls(t *testing.T, page, name string) (out [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), page))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range codeLines(string(text)) {
		out = append(out, calls(line, name)...)
	}
	return out
}

// pages are the documents, without those that are written from the commands.
func pages(t *testing.T) []string {
	t.Helper()
	root := Root(t)
	var out []string
	for _, dir := range []string{"", "docs", "testbed"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, e os.DirEntry, err error) error {
			rel, _ := filepath.Rel(root, name)
			switch {
			case err != nil:
				return err
			case e.IsDir() && (rel == commands || dir == "" && rel != "." || strings.HasPrefix(e.Name(), ".") && rel != "."):
				return filepath.SkipDir
			case filepath.Ext(name) == ".md":
				out = append(out, rel)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// codeLines are the lines in blocks of code, those that end in a backslash joined with the next one.
func codeLines(page string) []string {
	var out []string
	fenced, joined := false, ""
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced && !strings.HasPrefix(line, "    ") {
			continue
		}
		if cut, ok := strings.CutSuffix(line, "\\"); ok {
			joined += cut + " "
			continue
		}
		out = append(out, strings.TrimSpace(joined+strings.TrimSpace(line)))
		joined = ""
	}
	return out
}

var (
	// gap is what stands before the explanation of a command in a list of commands.
	gap = regexp.MustCompile(` {2,}|\s#\s`)
	// separator ends a command within a line.
	separator = regexp.MustCompile(`\s*(?:\|\||\||&&|;|\d?>>?|<|&$|\)|\()\s*`)
	// before are words that may stand before a command's name.
	before     = []string{"$", "#", "sudo", "time", "exec", "nohup", "-E"}
	assignment = regexp.MustCompile(`^[A-Za-z_]+=`)
)

// calls are the arguments of each call of the command in a line.
func calls(line, name string) [][]string {
	line = strings.TrimPrefix(strings.TrimPrefix(line, "$ "), "# ")
	if at := gap.FindStringIndex(line); at != nil {
		line = line[:at[0]]
	}
	line = quotedParts.ReplaceAllStringFunc(line, func(part string) string {
		return strings.Map(func(r rune) rune {
			if strings.ContainsRune(" |&;<>()", r) {
				return '_'
			}
			return r
		}, strings.Trim(part, `'"`))
	})
	var out [][]string
	for _, one := range separator.Split(line, -1) {
		words := strings.Fields(one)
		for len(words) > 0 && (slices.Contains(before, words[0]) || assignment.MatchString(words[0])) {
			words = words[1:]
		}
		switch {
		case len(words) > 2 && words[0] == "ssh":
			words = words[2:]
		case len(words) > 0 && (words[0] == "numactl" || words[0] == "taskset"):
			words = words[1:]
			for len(words) > 0 && strings.HasPrefix(words[0], "-") {
				words = words[1:]
			}
		}
		if len(words) > 0 && filepath.Base(words[0]) == name && !strings.Contains(one, "[") && !strings.HasSuffix(words[0], ":") {
			out = append(out, words[1:])
		}
	}
	return out
}

var quotedParts = regexp.MustCompile(`'[^']*'|"[^"]*"`)

// parses finds the subcommand and parses flags and arguments, as cobra does before it runs a command.
func parses(root *cobra.Command, args []string) error {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	for _, asked := range []string{"help", "version"} {
		if f := c.Flags().Lookup(asked); f != nil && f.Changed {
			return nil
		}
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err
	}
	if !c.Runnable() {
		return fmt.Errorf("%s is only a list of commands", c.CommandPath())
	}
	if before := root.PersistentPreRunE; before != nil {
		return before(c, c.Flags().Args())
	}
	return nil
}

// Blocks are the blocks of shell commands in a document.
func Blocks(t *testing.T, page string) (out []string) {
	t.Helper()
	for _, b := range pagetest.Read(t, filepath.Join(Root(t), page)).Of("sh") {
		out = append(out, b.Text)
	}
	return out
}
