// SPDX-License-Identifier: Apache-2.0

package exampletest

import (
	"context"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// Output is a buffer that several goroutines write to.
type Output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write takes what a program prints.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns what was printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Runs runs a program with flags, and checks that its output has these texts. The flags are put
// back when the test is over.
func Runs(t *testing.T, run func(context.Context, io.Writer) error, flags map[string]string, wants ...string) {
	t.Helper()
	for name, value := range flags {
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, before) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(time.Minute))
	defer cancel()
	out := new(Output)
	if err := run(ctx, out); err != nil {
		t.Fatalf("%v, after:\n%s", err, out)
	}
	for _, want := range wants {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// Length fails a test if the main.go of its package has more lines of code, or names more
// identifiers of package gpurdma, than it may. Blank lines and comments are not code. Neither
// are the plain checks of errors: what "if err != nil { return err }" has beside a call, with
// log.Fatal in main. There is no limit of identifiers if identifiers is 0.
func Length(t *testing.T, lines, identifiers int) {
	t.Helper()
	src, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(src), "// SPDX-License-Identifier: Apache-2.0\n") {
		t.Error("main.go does not begin with its licence")
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "main.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	line := func(p token.Pos) int { return files.Position(p).Line }
	code, checks, names := map[int]bool{}, map[int]bool{}, map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case nil, *ast.Comment, *ast.CommentGroup:
			return false
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "gpurdma" {
				names[n.Sel.Name] = true
			}
		case *ast.BasicLit: // one of several lines is code on all of them
			for i := line(n.Pos()); i <= line(n.End()); i++ {
				code[i] = true
			}
		case *ast.IfStmt:
			if checksError(n) {
				for i := line(n.Pos()); i <= line(n.End()); i++ {
					checks[i] = true
				}
				if n.Init != nil {
					delete(checks, line(n.Pos()))
				}
			}
		}
		code[line(n.Pos())], code[line(n.End()-1)] = true, true
		return true
	})
	total := len(code)
	for i := range checks {
		delete(code, i)
	}
	var list []string
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	t.Logf("%d lines, %d without checks of errors; %d identifiers: %s", total, len(code), len(list), strings.Join(list, " "))
	if len(code) > lines {
		t.Errorf("main.go has %d lines of code, and may have %d", len(code), lines)
	}
	if identifiers > 0 && len(list) > identifiers {
		t.Errorf("main.go names %d identifiers of package gpurdma, and may name %d: %v", len(list), identifiers, list)
	}
}

// checksError reports whether a statement is "if err != nil" with a return or log.Fatal, and
// nothing else.
func checksError(s *ast.IfStmt) bool {
	cond, ok := s.Cond.(*ast.BinaryExpr)
	if !ok || cond.Op != token.NEQ || s.Else != nil || len(s.Body.List) != 1 || !isName(cond.X, "err") || !isName(cond.Y, "nil") {
		return false
	}
	switch then := s.Body.List[0].(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.ExprStmt:
		call, ok := then.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		return ok && isName(f.X, "log") && f.Sel.Name == "Fatal"
	}
	return false
}

func isName(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}
