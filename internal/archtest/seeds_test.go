// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// seedPages map the documents from which the project came to this module.
var seedPages = []string{"docs/reference/dice.md", "docs/reference/dmabuf-proposal.md", "docs/reference/fi_rma.md", "docs/reference/noncontiguous.md", "docs/reference/verbs.md"}

// named are tests and examples as the seed documents' pages name them.
var named = regexp.MustCompile("`((?:Test|Example|Fuzz|Benchmark)[A-Za-z0-9_]*)`")

// The pages that map the seed documents to this module name the tests that show
// it: each must be there.
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
			}
		}
	}
}
