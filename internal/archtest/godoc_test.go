// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each name that a public package exports has a comment: a constant or a variable its own or its group's.
func TestExportedNamesAreDocumented(t *testing.T) {
	n := 0
	for folder, names := range packageFiles(t) {
		if !isPublic(folder) {
			continue
		}
		set := token.NewFileSet()
		var files []*ast.File
		for _, name := range names {
			f, err := parser.ParseFile(set, filepath.Join(root(t), folder, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		if files[0].Name.Name == "main" {
			continue
		}
		n++
		missing, err := undocumented(set, files, module+"/"+folder)
		if err != nil {
			t.Errorf("%s: %v", folder, err)
		}
		for _, name := range missing {
			t.Errorf("%s: %s has no comment", folder, name)
		}
	}
	if n < 40 {
		t.Errorf("only %d packages", n)
	}
}

// isPublic tells whether programs outside the repository may import the package in a folder, and are meant
// to: those of deploy and of the test bed are for commands only.
func isPublic(folder string) bool {
	for _, other := range []string{"internal", "testbed", "deploy", "tools"} {
		if strings.Contains("/"+folder+"/", "/"+other+"/") {
			return false
		}
	}
	return true
}

// undocumented are the exported names of a package that have no comment. Files for different machines may
// declare the same name: one comment is enough.
func undocumented(set *token.FileSet, files []*ast.File, path string) ([]string, error) {
	p, err := doc.NewFromFiles(set, files, path, doc.PreserveAST)
	if err != nil {
		return nil, err
	}
	var missing []string
	values := func(list []*doc.Value) {
		for _, v := range list {
			for _, s := range v.Decl.Specs {
				s := s.(*ast.ValueSpec)
				for _, name := range s.Names {
					if name.IsExported() && v.Doc == "" && s.Doc.Text() == "" && s.Comment.Text() == "" {
						missing = append(missing, name.Name)
					}
				}
			}
		}
	}
	funcs := func(of string, list []*doc.Func) {
		for _, f := range list {
			if f.Doc == "" {
				missing = append(missing, of+f.Name)
			}
		}
	}
	values(p.Consts)
	values(p.Vars)
	funcs("", p.Funcs)
	for _, t := range p.Types {
		if t.Doc == "" {
			missing = append(missing, t.Name)
		}
		values(t.Consts)
		values(t.Vars)
		funcs("", t.Funcs)
		funcs(t.Name+".", t.Methods)
	}
	slices.Sort(missing)
	return missing, nil
}

func TestUndocumented(t *testing.T) {
	src := `package p

const Lonely = 1

// A group.
const (
	A = iota
	B
)

const (
	C = 1 // a comment beside it
	D = 2
	e = 3
)

var Bad, Also int

type Naked struct{}

// Dressed is documented.
type Dressed struct{}

func (Dressed) Method() {}

// Documented does.
func (Dressed) Documented() {}

func (hidden) Exported() {}

type hidden struct{}

func New() Dressed { return Dressed{} }

// Func does.
func Func() {}
`
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "p.go", src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	missing, err := undocumented(set, []*ast.File{f}, "p")
	want := "[Also Bad D Dressed.Method Lonely Naked New]"
	if got := fmt.Sprint(missing); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
