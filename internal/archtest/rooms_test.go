// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/explanation/packages.md names each package of room p2p, and each below cmd/dmabuf-reg/internal, by its path or,
// beside others of one folder, by its last element.
func TestRoomsAreNamed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs/explanation/packages.md"))
	if err != nil {
		t.Fatal(err)
	}
	for folder, least := range map[string]int{"p2p": 20, "cmd/dmabuf-reg/internal": 15} {
		var rows []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "| `"+folder) {
				rows = append(rows, strings.Split(line, "|")[1])
			}
		}
		named := func(name string) bool {
			return slices.ContainsFunc(rows, func(row string) bool {
				return strings.Contains(row, "`"+name+"`") || strings.Contains(row, "`"+path.Dir(name)+"/") && strings.Contains(row, "`"+path.Base(name)+"`")
			})
		}
		n := 0
		for _, p := range list(t) {
			name := strings.TrimPrefix(p.ImportPath, module+"/")
			if name != folder && !strings.HasPrefix(name, folder+"/") || forTests(p) || p.Name == "main" {
				continue
			}
			n++
			if !named(name) {
				t.Errorf("docs/explanation/packages.md does not say what one changes in %s", name)
			}
		}
		if n < least {
			t.Errorf("%s: only %d packages", folder, n)
		}
	}
}

// mentioned are files and folders of the repository as pages name them, in code or as links.
var mentioned = regexp.MustCompile("[`(]((?:\\.\\./)*(?:bench|canary|cmd|deploy|dmabuf|docs|drm|fi|gpualloc|ibvfd|internal|kernel|layout|metrics|mk|p2p|pciaddr|placement|testbed|trace)/[A-Za-z0-9_./-]+\\.(?:go|md|sh|json|yml|yaml|mk))[`)#]")

// A page names no file that is not there.
func TestPagesNameFiles(t *testing.T) {
	dir, n := root(t), 0
	for _, page := range tracked(t, "*.md") {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range mentioned.FindAllStringSubmatch(string(text), -1) {
			n++
			_, err1 := os.Stat(filepath.Join(dir, m[1]))
			_, err2 := os.Stat(filepath.Join(dir, filepath.Dir(page), m[1]))
			if err1 != nil && err2 != nil && !strings.Contains(m[1], "SERIES") {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d files are named", n)
	}
}
