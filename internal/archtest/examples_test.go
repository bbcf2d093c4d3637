// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exampleLimits bound the main.go of each example: lines without comments, blank lines and the
// three lines of a check of an error that is returned; and names of the root package, 0 for any
// number.
var exampleLimits = map[string]struct{ lines, names int }{
	"hello": {60, 15}, "kvmove": {120, 0}, "fanin": {120, 0}, "twoprocesses": {120, 0},
}

func TestExamplesAreShort(t *testing.T) {
	dir := root(t)
	found := 0
	for _, name := range tracked(t, "examples/*/main.go") {
		found++
		example := filepath.Base(filepath.Dir(name))
		limit, ok := exampleLimits[example]
		if !ok {
			t.Errorf("%s has no limit", name)
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, text, 0) // without comments
		if err != nil {
			t.Fatal(err)
		}
		var code bytes.Buffer
		if err := format.Node(&code, set, f); err != nil {
			t.Fatal(err)
		}
		lines := 0
		for line := range strings.Lines(code.String()) {
			if strings.TrimSpace(line) != "" {
				lines++
			}
		}
		checks, names := 0, map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt:
				if len(n.Body.List) == 1 && n.Else == nil && isErrNotNil(n.Cond) {
					if _, ok := n.Body.List[0].(*ast.ReturnStmt); ok {
						checks++
					}
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "gpurdma" {
					names[n.Sel.Name] = true
				}
			}
			return true
		})
		if n := lines - 3*checks; n > limit.lines {
			t.Errorf("%s: %d lines without checks of errors, %d with them; at most %d", name, n, lines, limit.lines)
		}
		if limit.names > 0 && len(names) > limit.names {
			t.Errorf("%s uses %d names of the root package, at most %d", name, len(names), limit.names)
		}
		t.Logf("%s: %d lines, %d of them in checks of errors, %d names", name, lines, 3*checks, len(names))
	}
	if found != len(exampleLimits) {
		t.Errorf("%d examples, not %d", found, len(exampleLimits))
	}
}

func isErrNotNil(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	if !ok || b.Op != token.NEQ {
		return false
	}
	x, ok := b.X.(*ast.Ident)
	return ok && x.Name == "err"
}
