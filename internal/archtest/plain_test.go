// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxUnclear is how many of a thousand lines of comments, documents and messages may break a rule below.
const maxUnclear = 1.0

// rule is a form of sentence that a reader has to decode. The remedy says what to write instead.
type rule struct {
	name, remedy string
	match        *regexp.Regexp
	bad, good    []string
}

// sentence is where a sentence begins.
const sentence = `(?:^|[.!?:;] )`

var rules = []rule{
	{
		name: "nameless person", remedy: "name the caller, the peer, the user, the kernel",
		match: regexp.MustCompile(`(?i)\b(?:some|no|every|any)body\b|\b(?:some|every)one\b|\bwho(?:so)?ever\b|\bstrangers?\b`),
		bad:   []string{"nobody else has it open", "Whoever holds the lock releases it.", "memory that everybody may read", "a stranger's bytes"},
		good:  []string{"no other process has it open", "/home/user", "anyone's guess", "The holder of the lock releases it."},
	},
	{
		name: "who as a noun", remedy: "name the one that does it",
		match: regexp.MustCompile(sentence + `(?:Of )?Who\b` + `|\b(?:of|to|by|for|from|with|than|and|or) who (?:is|has|was|holds|owns|gets|asks|calls|waits|writes|reads)\b`),
		bad:   []string{"Who waits is woken.", "the choice of who has it", "It is freed. Who asks then gets an error."},
		good:  []string{"the caller, who waits", "A user who waits is woken.", "whole", "asks who it is"},
	},
	{
		name: "clause as a subject", remedy: "begin with the thing, and say what it does",
		match: regexp.MustCompile(sentence + `(?:What|That which) (?:is|are|was|were|has|have|had|it|they|the|a|an|can|cannot|could|does|comes|came|goes|ends?|must|may) [^?]*$`),
		bad:   []string{"What is not read is unknown.", "What the peer sends is bounded", "It ends. That which was lost comes again."},
		good:  []string{"A file that was not read is unknown.", "What is an MR?", "It says what is missing.", "Whatever the caller chose"},
	},
	{
		name: "told", remedy: "say who gives which fact to whom",
		match: regexp.MustCompile(`\b(?:is|are|was|were|be|been|being) told (?:of|by|that|to|when|apart|what|which|so)\b`),
		bad:   []string{"the caller is told of it", "they are told apart by their names", "It has to be told that it ended"},
		good:  []string{"the program tells the peer", "as we told the kernel", "The caller gets the reason."},
	},
	{
		name: "figure of speech", remedy: "name the mechanism in the words of the field",
		match: regexp.MustCompile(`(?i)\b(?:hearsay|lobby|gossip|in good faith|of no use|lay hands|taken? at (?:his|her|its|their) word|for a song|riddles?)\b`),
		bad:   []string{"waits in the lobby", "This is hearsay, no proof.", "The answer is of no use.", "The driver is taken at its word."},
		good:  []string{"waits for a place", "This is a report without evidence.", "No caller uses the answer."},
	},
}

// broken are the rules that a line breaks.
func broken(line string) (names []string) {
	for _, r := range rules {
		if r.match.MatchString(line) {
			names = append(names, r.name)
		}
	}
	return names
}

// line is a line of text for people.
type line struct {
	number int
	text   string
}

// textsOf are the lines of comments of a Go file, and those of its messages: strings of three words or more,
// outside tests.
func textsOf(name string, src []byte) ([]line, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var lines []line
	add := func(at token.Pos, text string) {
		first := set.Position(at).Line
		for i, s := range strings.Split(text, "\n") {
			if s = strings.Trim(s, "/* \t"); s != "" {
				lines = append(lines, line{first + i, s})
			}
		}
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			add(c.Pos(), c.Text)
		}
	}
	if strings.HasSuffix(name, "_test.go") {
		return lines, nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
			if text, err := strconv.Unquote(s.Value); err == nil && len(strings.Fields(text)) > 2 {
				add(s.Pos(), text)
			}
		}
		return true
	})
	return lines, nil
}

// linesOf are the lines of a document, without headings, and without what stands in a block of code.
func linesOf(src []byte) []line {
	var lines []line
	code := false
	s := bufio.NewScanner(bytes.NewReader(src))
	s.Buffer(nil, 1<<20)
	for n := 1; s.Scan(); n++ {
		text := strings.TrimSpace(s.Text())
		if strings.HasPrefix(text, "```") {
			code = !code
			continue
		}
		if text != "" && !code && !strings.HasPrefix(text, "#") {
			lines = append(lines, line{n, text})
		}
	}
	return lines
}

func TestPlainEnglish(t *testing.T) {
	dir := root(t)
	total := 0
	var found []string
	for _, name := range tracked(t, "*.go", "*.md") {
		src, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "internal/archtest/plain_test.go" || strings.Contains(name, "testdata/") {
			continue
		}
		lines := linesOf(src)
		if strings.HasSuffix(name, ".go") {
			if lines, err = textsOf(name, src); err != nil {
				t.Fatal(err)
			}
		}
		total += len(lines)
		for _, l := range lines {
			if names := broken(l.text); names != nil {
				i := slices.IndexFunc(rules, func(r rule) bool { return r.name == names[0] })
				found = append(found, fmt.Sprintf("%s:%d: %s (%s): %s", name, l.number, strings.Join(names, ", "), rules[i].remedy, l.text))
			}
		}
	}
	if total < 30_000 {
		t.Errorf("only %d lines were read", total)
	}
	rate := 1000 * float64(len(found)) / float64(total)
	t.Logf("%d of %d lines, %.2f in a thousand", len(found), total, rate)
	if rate > maxUnclear {
		t.Errorf("%d of %d lines break a rule, %.1f in a thousand, more than %.1f:", len(found), total, rate, maxUnclear)
	}
	for _, f := range found {
		t.Log(f)
	}
}

func TestPlainRules(t *testing.T) {
	for _, r := range rules {
		for _, s := range r.bad {
			if !slices.Contains(broken(s), r.name) {
				t.Errorf("%s: %q is not found", r.name, s)
			}
		}
		for _, s := range r.good {
			if names := broken(s); names != nil {
				t.Errorf("%s: %q is found, by %q", r.name, s, names)
			}
		}
		if r.remedy == "" || len(r.bad) < 3 || len(r.good) < 3 {
			t.Errorf("%s: it takes a remedy, and three examples of each kind", r.name)
		}
	}
}

func TestPlainReads(t *testing.T) {
	src := `package p

// Nobody reads this.
import "fmt"

/*
fine
whoever writes it
*/
func f() {
	somebody := 1 // fine
	fmt.Println("nobody", "somebody has the lock", ` + "`one line\nnobody has two`" + `, somebody)
}
`
	for name, want := range map[string]string{"a.go": "3 8 12 13", "a_test.go": "3 8"} {
		lines, err := textsOf(name, []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		if got := brokenAt(lines); got != want {
			t.Errorf("%s: lines %s, want %s", name, got, want)
		}
	}
	document := "# What is trusted\n\nNobody is.\n\n```\nnobody@host\n```\nfine\n| whoever | it |\n"
	if got := brokenAt(linesOf([]byte(document))); got != "3 9" {
		t.Errorf("document: lines %s", got)
	}
}

// brokenAt are the numbers of the lines that break a rule.
func brokenAt(lines []line) string {
	var numbers []string
	for _, l := range lines {
		if broken(l.text) != nil {
			numbers = append(numbers, strconv.Itoa(l.number))
		}
	}
	slices.Sort(numbers)
	slices.SortFunc(numbers, func(a, b string) int { return len(a) - len(b) })
	return strings.Join(numbers, " ")
}
