// SPDX-License-Identifier: Apache-2.0

package lspci

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/pciaddr"
)

// fixture is one of the texts: see testdata/README.md.
func fixture(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// machineOf makes the machine of a text, and of a tree unless that is "".
func machineOf(t testing.TB, text, tree string) *Machine {
	t.Helper()
	m, err := tryMachine(text, tree)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func tryMachine(text, tree string) (*Machine, error) {
	parsed, err := Parse(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	var beside *Tree
	if tree != "" {
		if beside, err = ParseTree(strings.NewReader(tree)); err != nil {
			return nil, err
		}
	}
	return parsed.Machine(beside)
}

// write writes the files of a machine below a new directory. A file that was not
// read is a link to itself.
func write(t testing.TB, m *Machine) string {
	t.Helper()
	root := testenv.TreeDir(t)
	for name, e := range m.Files {
		at := filepath.Join(root, name)
		dir := path.Dir(at)
		if e.Dir {
			dir = at
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case e.Dir:
		case e.Unreadable:
			err = os.Symlink(path.Base(name), at)
		case e.Link != "":
			err = os.Symlink(e.Link, at)
		default:
			err = os.WriteFile(at, e.Data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// dirOf is the directory of a function, "" if the machine does not have it.
func (m *Machine) dirOf(address string) string {
	link := m.Files["sys/bus/pci/devices/"+address].Link
	if link == "" {
		return ""
	}
	return path.Join("sys/bus/pci/devices", link)
}

// of has the files of a function, by their names in its directory.
func (m *Machine) of(address string) map[string]Entry {
	out := map[string]Entry{}
	dir := m.dirOf(address) + "/"
	for name, e := range m.Files {
		if rest, ok := strings.CutPrefix(name, dir); ok && !strings.Contains(rest, ":") {
			out[rest] = e
		}
	}
	return out
}

// addresses are those of the functions of a machine.
func (m *Machine) addresses() []string {
	var out []string
	for name := range m.Files {
		if rest, ok := strings.CutPrefix(name, "sys/bus/pci/devices/"); ok {
			out = append(out, rest)
		}
	}
	return out
}

func addr(t testing.TB, text string) pciaddr.Addr {
	t.Helper()
	a, err := pciaddr.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
