// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// seedPages map the documents from which the project came to this module.
var seedPages = []string{"docs/reference/dice.md", "docs/reference/dmabuf-proposal.md", "docs/reference/fi_rma.md", "docs/reference/noncontiguous.md", "docs/reference/verbs.md"}

// named are tests and examples as the seed documents' pages name them.
var named = regexp.MustCompile("`((?:Test|Example|Fuzz|Benchmark)[A-Za-z0-9_]*)`")

// The pages that map the seed documents to this module name the tests that show it. Each test must
// exist, and one for virtual machines must be in a list of tests that have to run there.
func TestSeedPagesNameTests(t *testing.T) {
	dir := root(t)
	known := map[string]bool{}
	for _, name := range tracked(t, "*_test.go") {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				known[fn.Name.Name] = true
			}
		}
	}
	run := requiredTests(t, dir)
	for _, page := range seedPages {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Error(err)
			continue
		}
		tests := named.FindAllStringSubmatch(string(text), -1)
		if len(tests) == 0 {
			t.Errorf("%s names no test", page)
		}
		for _, m := range tests {
			if !known[m[1]] {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			} else if strings.HasPrefix(m[1], "TestVM") && !run[m[1]] {
				t.Errorf("%s names %s, which no list of testbed/required has", page, m[1])
			}
		}
	}
}

// requiredTests returns the functions that have to run in virtual machines, on some kernel.
func requiredTests(t *testing.T, dir string) map[string]bool {
	t.Helper()
	run := map[string]bool{}
	for _, list := range tracked(t, "testbed/required/*.txt") {
		text, err := os.ReadFile(filepath.Join(dir, list))
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			if _, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				name, _, _ = strings.Cut(name, "/")
				name, _, _ = strings.Cut(name, "@")
				run[name] = true
			}
		}
	}
	return run
}
