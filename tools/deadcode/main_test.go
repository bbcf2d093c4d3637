// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAllowed(t *testing.T) {
	allowed, err := parseAllowed("# a comment\n\na.F tests use it\nb.T.M  another\n")
	if err != nil || len(allowed) != 2 || allowed["b.T.M"] != "another" {
		t.Errorf("%v, %v", allowed, err)
	}
	for text, want := range map[string]string{"a.F\n": "has no reason", "a.F x\na.F y\n": "line 2: a.F is there twice"} {
		if _, err := parseAllowed(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestCompare(t *testing.T) {
	found := findings{dead: []function{{"a.F", "a/a.go:3"}, {"a.G", "a/a.go:9"}}}
	lines := compare(found, map[string]string{"a.G": "reason", "a.H": "reason"})
	if len(lines) != 2 || !strings.Contains(lines[0], "a/a.go:3: a.F is reached by no command") || !strings.Contains(lines[1], "a.H, which is not dead") {
		t.Errorf("%q", lines)
	}
}

func TestReferences(t *testing.T) {
	src := "package p\n\nfunc F() {}\n\nfunc f() {}\n\nfunc G[T any]() {}\n\ntype T struct{}\n\ntype U[E any] struct{}\n\nfunc (T) M() {}\n\nvar V = 1\n"
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range f.Decls {
		all = append(all, references(d, "x")...)
	}
	if !slices.Equal(all, []string{"x.F", "(*x.T)(nil)"}) {
		t.Errorf("%q", all)
	}
}

func TestPublic(t *testing.T) {
	for path, want := range map[string]bool{
		modulePath: true, modulePath + "/ibvfd/cm": true, modulePath + "/internal/rc": false, modulePath + "/ibvfd/internal/enum": false,
		modulePath + "/deploy/dra/node": false, modulePath + "/testbed/vm": false, modulePath + "x": false, "fmt": false,
	} {
		if got := isPublic(listed{ImportPath: path, Name: "p"}); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if isPublic(listed{ImportPath: modulePath + "/cmd/p2pcheck", Name: "main"}) {
		t.Error("a command is public")
	}
}

// A repository of two modules: one function of each kind. Only what neither a command nor the public package
// reaches, in either build, is found.
func TestAnalyze(t *testing.T) {
	analyzer := filepath.Join(t.TempDir(), "deadcode")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", analyzer, "golang.org/x/tools/cmd/deadcode").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                      "module " + modulePath + "\n\ngo 1.26.0\n\nignore ./build\n",
		"lib.go":                      "package gpurdma\n\nimport \"" + modulePath + "/internal/a\"\n\n// T is public.\ntype T struct{}\n\n// M is a method that no command calls.\nfunc (T) M() { a.Used() }\n",
		"internal/a/a.go":             "package a\n\nfunc Used() {}\n\nfunc Dead() {}\n\nfunc ByTestbed() {}\n\nfunc Arm() {}\n",
		"internal/a/a_amd64.go":       "package a\n\nfunc OnlyAMD() {}\n",
		"internal/b/b.go":             "package b\n\nfunc Alone() { println() }\n\nvar _ = func() { Alone() }\n",
		"cmd/dmabuf-reg/main.go":      "//go:build !manual\n\npackage main\n\nfunc main() {}\n\nfunc shared() {}\n",
		"cmd/dmabuf-reg/manual.go":    "//go:build manual\n\npackage main\n\nfunc main() {}\n",
		"cmd/p2pcheck/main.go":        "package main\n\nfunc main() { arm() }\n",
		"cmd/p2pcheck/arm_arm64.go":   "package main\n\nimport \"" + modulePath + "/internal/a\"\n\nfunc arm() { a.Arm() }\n",
		"cmd/p2pcheck/arm_other.go":   "//go:build !arm64\n\npackage main\n\nfunc arm() {}\n",
		"testbed/go.mod":              "module " + modulePath + "/testbed\n\ngo 1.26.0\n\nrequire " + modulePath + " v0.0.0\n\nreplace " + modulePath + " => ../\n",
		"testbed/cmd/testbed/main.go": "package main\n\nfunc main() {}\n",
		"deploy/go.mod":               "module " + modulePath + "/deploy\n\ngo 1.26.0\n",
		"deploy/dra/go.mod":           "module " + modulePath + "/deploy/dra\n\ngo 1.26.0\n",
		"metrics/spans/go.mod":        "module " + modulePath + "/metrics/spans\n\ngo 1.26.0\n",
		"deploy/doc.go":               "package deploy\n",
		"deploy/dra/doc.go":           "package dra\n",
		"metrics/spans/doc.go":        "package spans\n",
		"internal/a/doc.go":           "package a\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, err := analyze(analyzer, dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range found.dead {
		names = append(names, f.name)
	}
	slices.Sort(names)
	want := []string{"cmd/dmabuf-reg.shared", "internal/a.ByTestbed", "internal/a.Dead", "internal/a.OnlyAMD", "internal/b"}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
