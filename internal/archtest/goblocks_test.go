// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pagetest"
)

// packages are the packages that blocks of pages use, by the names that they have there. A block that
// needs another one fails to compile.
var packages = map[string]string{
	"canary": module + "/canary", "dmabuf": module + "/dmabuf", "fabrictest": module + "/fabrictest",
	"fi": module + "/fi", "gpualloc": module + "/gpualloc", "gpurdma": module, "ibvfd": module + "/ibvfd",
	"metrics": module + "/metrics", "placement": module + "/placement", "spans": module + "/metrics/spans",
	"trace": module + "/trace", "prometheus": "github.com/prometheus/client_golang/prometheus",
	"context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "os": "os", "testing": "testing",
	"time": "time", "tls": "crypto/tls", "x509": "crypto/x509",
}

// given are the names that a block may use without making them, with their types. A name with a page
// before it is that page's alone.
var given = map[string]string{
	"ctx": "context.Context", "cert": "tls.Certificate", "authority": "*x509.CertPool",
	"conn": "*gpurdma.Conn", "fabric": "*gpurdma.Fabric", "remote": "gpurdma.Remote",
	"buffer": "*gpurdma.Buffer", "docs/reference/fi_rma.md buffer": "*gpualloc.Buffer",
	"docs/reference/fi_rma.md entries": "[]fi.CQEntry",
}

// modules are the folders with Go modules of their own whose packages blocks use.
var modules = map[string]string{module + "/metrics/spans": "metrics/spans"}

// Each block of Go in a page compiles: a whole file as it is, declarations as those of a file, and
// statements as the body of a function. A line of dots stands for statements that are left out. A block
// that is a part of a file which the page links to is compiled with that file.
func TestGoBlocksCompile(t *testing.T) {
	dir, n := root(t), 0
	sources := map[string]map[string]string{} // by module, then by file
	for _, name := range tracked(t, "*.md") {
		p := pagetest.Read(t, filepath.Join(dir, name))
		linked := sourcesOf(t, dir, p, name)
		for _, b := range p.Of("go") {
			n++
			if strings.Contains(linked, b.Text) {
				continue // a part of a file that is compiled as it is
			}
			text, in, err := program(name, b)
			if err != nil {
				t.Errorf("%s:%d: %v", name, b.Line, err)
				continue
			}
			if sources[in] == nil {
				sources[in] = map[string]string{}
			}
			sources[in][fmt.Sprintf("block%d", n)] = text
		}
	}
	if n < 10 {
		t.Errorf("only %d blocks of Go", n)
	}
	for in, files := range sources {
		if out := compiled(t, filepath.Join(dir, in), files); out != "" {
			t.Errorf("%s", out)
		}
	}
}

// sourcesOf returns the files of Go that a page links to.
func sourcesOf(t *testing.T, dir string, p pagetest.Page, name string) (text string) {
	t.Helper()
	for _, m := range target.FindAllStringSubmatch(p.Prose, -1) {
		if !strings.HasSuffix(m[1], ".go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, filepath.Dir(name), m[1]))
		if err != nil {
			t.Error(err)
		}
		text += string(data)
	}
	return text
}

// The test finds a block that does not compile, and names its line of the page.
func TestBlockThatDoesNotCompile(t *testing.T) {
	text, in, err := program("docs/x.md", pagetest.Block{Line: 7, Text: "fab, err := gpurdma.Open(\"mlx5_0\")\nfab.NoSuchMethod()\n"})
	if err != nil {
		t.Fatal(err)
	}
	if out := compiled(t, filepath.Join(root(t), in), map[string]string{"block1": text}); !strings.Contains(out, "docs/x.md:8") || !strings.Contains(out, "NoSuchMethod") {
		t.Errorf("not found: %s\n%s", out, text)
	}
}

var dots = regexp.MustCompile(`(?m)^(\s*)(\.\.\.|…)$`)

// program returns a file of Go that a block makes, and the folder of the module that it is for.
func program(name string, b pagetest.Block) (text, in string, err error) {
	body := dots.ReplaceAllString(b.Text, "$1// …")
	at := fmt.Sprintf("//line %s:%d\n", name, b.Line)
	if parseAs(body) != nil {
		return at + body, "", nil
	}
	head, tail := "", ""
	f := parseAs("package p\n" + body)
	if f == nil {
		if f = parseAs("package p\nfunc _() {\n" + body + "\n}\n"); f == nil {
			_, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() {\n"+at+body+"\n}\n", 0)
			return "", "", err
		}
		head, tail = "func _(%s) {\n", "\n"+used(f)+"}\n"
	}
	var imports, params []string
	free := unresolved(f)
	types := ""
	for _, x := range free {
		if kind, ok := given[name+" "+x]; ok {
			params, types = append(params, x+" "+kind), types+kind+" "
		} else if kind, ok := given[x]; ok && head != "" {
			params, types = append(params, x+" "+kind), types+kind+" "
		}
	}
	for x, path := range packages {
		if slices.Contains(free, x) || regexp.MustCompile(`\b`+x+`\.`).MatchString(types) {
			imports = append(imports, fmt.Sprintf("import %s %q\n", x, path))
			in += modules[path]
		}
	}
	slices.Sort(imports)
	if head != "" {
		head = fmt.Sprintf(head, strings.Join(params, ", "))
	}
	return "package p\n" + strings.Join(imports, "") + head + at + body + tail, in, nil
}

// parseAs returns the syntax of a file, nil if it is none.
func parseAs(text string) *ast.File {
	f, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	if err != nil {
		return nil
	}
	return f
}

// used is a statement that uses the variables of the function: the compiler refuses those that are not.
func used(f *ast.File) string {
	names := map[string]bool{}
	for _, s := range f.Decls[0].(*ast.FuncDecl).Body.List {
		if a, ok := s.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
			for _, x := range a.Lhs {
				if id, ok := x.(*ast.Ident); ok && id.Name != "_" {
					names[id.Name] = true
				}
			}
		}
	}
	text := ""
	for _, x := range slices.Sorted(maps.Keys(names)) {
		text += "_ = " + x + "\n"
	}
	return text
}

// unresolved are the names that a file uses and does not declare.
func unresolved(f *ast.File) (out []string) {
	for _, id := range f.Unresolved {
		if !slices.Contains(out, id.Name) {
			out = append(out, id.Name)
		}
	}
	return out
}

// compiled compiles files, each as a package of the module in dir, and returns what the compiler says. The
// files are not written into the module: an overlay has them.
func compiled(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	tmp := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	var args []string
	for name, text := range files {
		file := filepath.Join(tmp, name+".go")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(dir, "zz_pages", name, "block.go")] = file
		args = append(args, "./zz_pages/"+name)
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(list, data, 0o644); err != nil {
		t.Fatal(err)
	}
	slices.Sort(args)
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", list, "-o", os.DevNull}, args...)...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Sprintf("%v: %s", err, &out)
	}
	return ""
}
