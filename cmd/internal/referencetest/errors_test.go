// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/fault"
)

// docs/reference/errors.md has a row for each error that programs can test for, each kind, stage, cause and
// status, and for no other.
func TestErrorsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(Root(t), "docs/reference/errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := codesInRows(string(page))
	var want []string
	want = append(want, cli.Kinds...)
	want = append(want, words[fault.Stage]()...)
	want = append(want, words[fault.Cause]()...)
	for s := ibvfd.WCStatus(0); !strings.HasSuffix(s.String(), fmt.Sprintf("(%d)", s)); s++ {
		want = append(want, s.String())
	}
	exported := exportedErrors(t)
	if len(exported) < 60 {
		t.Errorf("only %d errors of packages were found", len(exported))
	}
	want = append(want, exported...)
	for _, name := range want {
		if !slices.Contains(rows, name) {
			t.Errorf("docs/reference/errors.md has no row for %q", name)
		}
	}
	for _, name := range rows {
		if !slices.Contains(want, name) {
			t.Errorf("docs/reference/errors.md has a row for %q, which the code does not have", name)
		}
	}
}

// codesInRows are the code spans in the first cells of tables.
func codesInRows(page string) (out []string) {
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || cells[0] != "" {
			continue
		}
		for i, part := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				out = append(out, part)
			}
		}
	}
	return out
}

// exportedErrors are the variables Err… of the public packages, and the codes of package fi, as "pkg.Name".
func exportedErrors(t *testing.T) (out []string) {
	t.Helper()
	dir := Root(t)
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		if e.IsDir() {
			if slices.Contains([]string{".git", "build", "internal", "cmd", "deploy", "testbed", "testdata", "tools", "kernel", "bench", "metrics"}, e.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR && !(g.Tok == token.CONST && rel == filepath.Join("fi", "errno.go")) {
				continue
			}
			for _, s := range g.Specs {
				for _, n := range s.(*ast.ValueSpec).Names {
					full := f.Name.Name + "." + n.Name
					if n.IsExported() && (strings.HasPrefix(n.Name, "Err") || g.Tok == token.CONST) && !slices.Contains(out, full) {
						out = append(out, full)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
