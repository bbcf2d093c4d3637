// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A package that a reader can keep in mind has at most so many files beside its tests, and no larger
// circle of files that need one another. A file has at most so many lines.
const (
	maxFiles  = 30
	maxCircle = 12
	maxLines  = 500
)

func TestFilesAreSmall(t *testing.T) {
	dir := root(t)
	for _, name := range tracked(t, "*.go") {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, more than %d: cut it in two by what a reader looks for", name, n, maxLines)
		}
	}
}

func TestPackagesAreSmall(t *testing.T) {
	dir, n := root(t), 0
	for folder, files := range packageFiles(t) {
		n++
		if len(files) > maxFiles {
			t.Errorf("%s has %d files beside its tests, more than %d", folder, len(files), maxFiles)
		}
		ctx := build.Default
		pkg, err := ctx.ImportDir(filepath.Join(dir, folder), 0)
		if err != nil {
			continue // no file of it is for this machine
		}
		circle, err := largestCircle(pkg.Dir, append(slices.Clone(pkg.GoFiles), pkg.CgoFiles...))
		if err != nil {
			t.Errorf("%s: %v", folder, err)
		}
		if len(circle) > maxCircle {
			t.Errorf("%s: %d files need one another, more than %d: %s", folder, len(circle), maxCircle, strings.Join(circle, " "))
		}
	}
	if n < 200 {
		t.Errorf("only %d packages", n)
	}
}

// packageFiles are the files of each package of all modules, without tests.
func packageFiles(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	for _, name := range tracked(t, "*.go") {
		if !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "/testdata/") {
			files[path.Dir(name)] = append(files[path.Dir(name)], path.Base(name))
		}
	}
	return files
}

// largestCircle is the largest set of files of which each leads to each other: it uses a name that the
// other declares, or one that a file declares which leads there. Packages that are imported are not read.
func largestCircle(dir string, names []string) ([]string, error) {
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(set, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{FakeImportC: true, Error: func(error) {}, Importer: nothing{}}
	pkg, _ := conf.Check(dir, set, files, &info)

	at := func(p token.Pos) int { return slices.Index(names, filepath.Base(set.Position(p).Filename)) }
	leads := make([][]bool, len(names))
	for i := range leads {
		leads[i] = make([]bool, len(names))
	}
	for use, o := range info.Uses {
		if o.Pkg() == pkg && o.Pos().IsValid() {
			leads[at(use.Pos())][at(o.Pos())] = true
		}
	}
	for via := range names {
		for from := range names {
			for to := range names {
				leads[from][to] = leads[from][to] || leads[from][via] && leads[via][to]
			}
		}
	}
	var largest []string
	for i := range names {
		circle := []string{names[i]}
		for j := range names {
			if j != i && leads[i][j] && leads[j][i] {
				circle = append(circle, names[j])
			}
		}
		if len(circle) > len(largest) {
			largest = circle
		}
	}
	slices.Sort(largest)
	return largest, nil
}

// nothing imports no package: names of other packages make no circle.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	return nil, errors.New(path + " is not read")
}

func TestLargestCircle(t *testing.T) {
	write := func(t *testing.T, texts map[string]string) (dir string, names []string) {
		dir = t.TempDir()
		for name, text := range texts {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("package p\n\n"+text), 0o644); err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		return dir, names
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"functions in a circle": {map[string]string{"a.go": "func a() { b() }", "b.go": "func b() { c() }", "c.go": "func c() { a() }"}, "a.go b.go c.go"},
		"a chain is none":       {map[string]string{"a.go": "func a() { b() }", "b.go": "func b() { c() }", "c.go": "func c() {}"}, "a.go"},
		"a field and a method": {map[string]string{"a.go": "type a struct{ n int }\n\nfunc f(x b) { x.m() }", "b.go": "type b struct{}\n\nfunc (b) m() { _ = a{}.n }",
			"c.go": "import \"os\"\n\nfunc c() { f(b{}); os.Exit(1) }"}, "a.go b.go"},
		"a local variable of the same name is none": {map[string]string{"a.go": "var x = y", "b.go": "const y = 1\n\nfunc g() { x := 2; _ = x }"}, "a.go"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, names := write(t, c.files)
			slices.Sort(names)
			got, err := largestCircle(dir, names)
			if s := strings.Join(got, " "); err != nil || s != c.want {
				t.Errorf("%s, %v; want %s", s, err, c.want)
			}
		})
	}
	long := map[string]string{}
	for i := range maxCircle + 1 {
		long[fmt.Sprintf("f%02d.go", i)] = fmt.Sprintf("func f%d() { f%d() }", i, (i+1)%(maxCircle+1))
	}
	dir, names := write(t, long)
	if got, err := largestCircle(dir, names); err != nil || len(got) <= maxCircle {
		t.Errorf("a circle of %d files: %d, %v", maxCircle+1, len(got), err)
	}
	if _, err := largestCircle(dir, []string{"missing.go"}); err == nil {
		t.Error("a missing file is no error")
	}
}
