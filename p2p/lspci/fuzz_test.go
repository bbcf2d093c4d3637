// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/p2p"
	"github.com/gpurdma/gpurdma/p2p/chain"
	"github.com/gpurdma/gpurdma/p2p/drivers"
	"github.com/gpurdma/gpurdma/p2p/machine"
)

// seeds are the fixtures and parts of them.
func seeds(f *testing.F, add func(text string)) {
	f.Helper()
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) < 5 {
		f.Fatal(names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		blocks := strings.SplitAfter(string(text), "\n\n")
		add(strings.Join(blocks[:min(len(blocks), 3)], ""))
		for _, block := range blocks {
			add(block)
			add(block[:len(block)/2])
		}
	}
	for _, odd := range []string{"", "\n", "[", "\x00", "0000:00:00.0", "0000:00:00.0 x: y\n\tBus: primary=00, secondary=ff,", "-[0000:00]-", "-+-[0000:00]-+-00.0-[01-ff]--+-[0000:01]-+-\n"} {
		add(odd)
	}
}

// A text that a person has made crashes nothing, leads nowhere outside, and makes no
// pair direct.
func FuzzParse(f *testing.F) {
	seeds(f, func(text string) { f.Add(text) })
	f.Fuzz(func(t *testing.T, text string) {
		m, err := tryMachine(text, "")
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Error(err)
			}
			return
		}
		check(t, m)
	})
}

// So does a tree beside a text.
func FuzzTree(f *testing.F) {
	text, err := os.ReadFile("testdata/domains.txt")
	if err != nil {
		f.Fatal(err)
	}
	seeds(f, func(tree string) { f.Add(string(text), tree) })
	f.Fuzz(func(t *testing.T, text, tree string) {
		m, err := tryMachine(text, tree+"\n")
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Error(err)
			}
			return
		}
		check(t, m)
	})
}

func check(t *testing.T, m *Machine) {
	t.Helper()
	for name, e := range m.Files {
		outside := !filepath.IsLocal(name) || path.Clean(name) != name || len(name) > 1024 || strings.ContainsAny(name, "\\\x00")
		if outside || e.Link != "" && !filepath.IsLocal(path.Join(path.Dir(name), e.Link)) {
			t.Errorf("%q leads to %q", name, e.Link)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if above, there := m.Files[dir]; there && !above.Dir {
				t.Errorf("%q is below %q, which is no directory", name, dir)
			}
		}
	}
	if t.Failed() || len(m.Files) > 5000 {
		return
	}
	read := machine.Source{Root: write(t, m), Release: "7.3.0"}.Open()
	gpus, _ := drivers.GPUs(read)
	nics, _ := drivers.NICs(read)
	for _, g := range gpus {
		for _, n := range nics {
			if p := p2p.Judge(read, g, n); p.Verdict.Outcome() == chain.Direct {
				t.Errorf("%s -> %s: %v", g.Name, n.Name, p.Prediction)
			}
		}
	}
}
