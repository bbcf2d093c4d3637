// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
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

func TestPlainEnglish(t *testing.T) {
	dir := root(t)
	total := 0
	var found []string
	for _, name := range tracked(t) {
		read := readerOf(name)
		if read == nil || name == "internal/archtest/plain_test.go" || strings.Contains(name, "testdata/") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		lines, err := read(name, src)
		if err != nil {
			t.Fatal(err)
		}
		total += len(lines)
		for _, l := range lines {
			if names := broken(l.text); names != nil {
				i := slices.IndexFunc(rules, func(r rule) bool { return r.name == names[0] })
				found = append(found, fmt.Sprintf("%s:%d: %s (%s): %s", name, l.number, strings.Join(names, ", "), rules[i].remedy, l.text))
			}
		}
	}
	if total < 45_000 {
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
	document := "# What is trusted\n\nNobody is.\n\n```\nnobody@host\n```\nfine\n| whoever | it |\n"
	program := `/* Nobody reads this. */
int nobody; // fine, but: nobody reads it
/*
 * It is fine here.
 * Who reads it is odd.
 */
char *s = "nobody", *t = "/* nobody reads \\" this"; char nobody_too, q = '"'; /* fine */ char *n = "nobody is here";
`
	script := `#!/bin/sh
# Nobody reads this.
nobody=${x#somebody} # nobody else
echo "nobody listens here" nobody 'nobody listens either'
echo "user nobody"
cat >&2 <<END
nobody
Nobody listens here.
END
nobody said so
`
	page := "<!-- fine -->\n<p title=\"nobody\">Nobody listens <b>here</b>.</p>\n<p>nobody</p>\n<p aria-label=\"nobody is here\">"
	patch := `From 0 Mon Sep 17 00:00:00 2001
Subject: [PATCH] Nobody needs it

What is read is fine.
---
 nobody.c | 2 +-
-/* Nobody read this. */
+/* Nobody reads this. */
 /* Nobody has changed this. */
+/*
+ * fine: nobody
+ */
`
	for _, test := range []struct{ name, text, want string }{
		{"a.go", src, "3 8 12 13"},
		{"a_test.go", src, "3 8"},
		{"a.md", document, "3 9"},
		{"a.c", program, "1 2 5 7 7"},
		{"a.js", program, "1 2 5 7 7"},
		{"a.html", page, "2 4"},
		{"a.sh", script, "2 3 4 4 8"},
		{"a.mk", script, "2 3 4 4 8"},
		{"script/a", script, "2 3 4 4 8"},
		{"a.patch", patch, "2 4 8 11"},
	} {
		lines, err := readerOf(test.name)(test.name, []byte(test.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := brokenAt(lines); got != test.want {
			t.Errorf("%s: lines %s, want %s", test.name, got, test.want)
		}
	}
	if readerOf("a.json") != nil || readerOf("LICENSE") != nil {
		t.Error("a file that has no text of ours is read")
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
