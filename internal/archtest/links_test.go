// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/pagetest"
)

// target is where a link or an image of a page leads to.
var target = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)|(?:src|srcset|href)="([^"]+)"`)

// Each relative link of each page leads to a file of the repository, and its anchor to a heading there.
func TestLinksResolve(t *testing.T) {
	dir, links, anchors := root(t), 0, 0
	pages := map[string]pagetest.Page{}
	read := func(name string) pagetest.Page {
		p, ok := pages[name]
		if !ok {
			p = pagetest.Read(t, filepath.Join(dir, name))
			pages[name] = p
		}
		return p
	}
	for _, name := range tracked(t, "*.md") {
		p := read(name)
		for _, m := range target.FindAllStringSubmatch(p.Prose, -1) {
			to := m[1] + m[2]
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			links++
			file, anchor, has := strings.Cut(to, "#")
			if file == "" {
				file = name
			} else {
				file = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil || strings.HasPrefix(file, "..") {
				t.Errorf("%s links to %s, which does not exist", name, to)
				continue
			}
			if !has {
				continue
			}
			anchors++
			if !strings.HasSuffix(file, ".md") || !read(file).Anchors[anchor] {
				t.Errorf("%s links to %s: %s has no such heading", name, to, file)
			}
		}
	}
	if links < 100 || anchors < 20 {
		t.Errorf("only %d links, %d of them with an anchor", links, anchors)
	}
}
