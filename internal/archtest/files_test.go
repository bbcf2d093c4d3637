// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the module's directory.
func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// tracked lists the repository's files that match one of the patterns.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "-z", "--"}, patterns...)...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	var files []string
	for _, f := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join(cmd.Dir, f)); err == nil && f != "" {
			files = append(files, f)
		}
	}
	return files
}

// mayUseUnsafe says by its name what a file may do: unsafe belongs in ABI
// descriptions, in *_unsafe.go and in cgo glue.
var mayUseUnsafe = regexp.MustCompile(`(^|/)(abi[^/]*|[^/]*_unsafe(_test)?|[^/]*cgo[^/]*|[^/]*abi[^/]*_test)\.go$`)

func TestUnsafeStaysInItsFiles(t *testing.T) {
	dir := root(t)
	for _, name := range tracked(t, "*.go") {
		if mayUseUnsafe.MatchString(name) || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			continue
		}
		cgo, unsafe := false, false
		for _, i := range f.Imports {
			cgo = cgo || i.Path.Value == `"C"`
			unsafe = unsafe || i.Path.Value == `"unsafe"`
		}
		if unsafe && !cgo {
			t.Errorf("%s imports unsafe: name it *_unsafe.go or move that part to one", name)
		}
	}
}

func TestEveryFileHasALicence(t *testing.T) {
	dir := root(t)
	for _, name := range tracked(t, "*.go", "*.c", "*.h", "*.sh", "*.mk", "Makefile", "script/*", ".ci/run") {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if head := data[:min(len(data), 400)]; !bytes.Contains(head, []byte("SPDX-License-Identifier: ")) {
			t.Errorf("%s has no SPDX-License-Identifier line", name)
		}
	}
}

// A page is 4 KiB on x86, and 16 or 64 KiB on machines this is meant for.
func TestPageSizeIsAskedFor(t *testing.T) {
	dir := root(t)
	for _, name := range tracked(t, "*.go") {
		// A header's constants are what they are.
		abi := strings.HasPrefix(filepath.Base(name), "abi_")
		if abi || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "testbed/") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && (lit.Value == "4096" || lit.Value == "0xfff" || lit.Value == "4095") {
				t.Errorf("%s: literal %s: ask os.Getpagesize", name, lit.Value)
			}
			return true
		})
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	for _, p := range list(t) {
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
		if room(p.ImportPath) == "internal" || p.Name == "main" || strings.Contains(p.ImportPath, "/internal/") {
			continue
		}
		if !hasExample(t, p) {
			t.Errorf("%s has no example, seen from outside the package", p.ImportPath)
		}
	}
}

// saysWhatToChange matches the sentence of a doc.go for people who change the package.
var saysWhatToChange = regexp.MustCompile(`(?i)\b(?:change|one changes|added|add|write|look below)\b`)

// Each package of each module but the examples has a doc.go, with the package's only comment and with a sentence
// about what to change where.
func TestEveryPackageHasADocGo(t *testing.T) {
	dir := root(t)
	for folder, names := range packageFiles(t) {
		if strings.HasPrefix(folder, "examples/") {
			continue
		}
		if !slices.Contains(names, "doc.go") {
			t.Errorf("%s has no doc.go", folder)
			continue
		}
		for _, name := range names {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, folder, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Error(err)
				continue
			}
			if has := f.Doc != nil; has != (name == "doc.go") {
				t.Errorf("%s/%s: a package comment: %v; it belongs in doc.go", folder, name, has)
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, folder, "doc.go"))
		if err != nil {
			t.Error(err)
		} else if !saysWhatToChange.Match(text) {
			t.Errorf("%s/doc.go does not say what to change where", folder)
		}
	}
}

// hasExample looks into the external tests, where a package is used as its
// readers will.
func hasExample(t *testing.T, p pkg) bool {
	for _, name := range p.XTestGoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Example") {
				return true
			}
		}
	}
	return false
}
