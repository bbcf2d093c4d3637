// SPDX-License-Identifier: Apache-2.0

package referencetest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Written is the head of a document that a test writes.
const Written = "<!-- SPDX-License-Identifier: Apache-2.0 -->\n<!-- `make reference` writes this page from the program: do not change it here. -->\n"

// Root is the directory of the repository.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// root looks for the repository from the working directory upwards: tests run in the directory of their package.
func root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if st, err := os.Stat(filepath.Join(dir, "docs", "reference")); err == nil && st.IsDir() {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no docs/reference in the working directory or above it")
		}
	}
	return "", err
}

// Document compares a file of the repository with the text that the program gives. With update it writes the
// file first.
func Document(t *testing.T, name string, text []byte, update bool) {
	t.Helper()
	file := filepath.Join(Root(t), name)
	if update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // documents are for all
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, text) {
		t.Errorf("%s is not what the program gives (%v): `make reference` writes it", name, err)
	}
}

// OnlyThese reports the files of a directory with this beginning that are not among names.
func OnlyThese(t *testing.T, dir, beginning string, names []string) {
	t.Helper()
	all, err := os.ReadDir(filepath.Join(Root(t), dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if strings.HasPrefix(e.Name(), beginning) && !slices.Contains(names, e.Name()) {
			t.Errorf("%s belongs to nothing that the program has: remove it", filepath.Join(dir, e.Name()))
		}
	}
}

// Linked reports the documents whose schemas a page does not lead to.
func Linked(t *testing.T, page string, all []Of) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), page))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Error("no documents")
	}
	for _, of := range all {
		to, err := filepath.Rel(filepath.Dir(page), filepath.Join(Schemas, of.Name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "]("+to+")") {
			t.Errorf("%s does not lead to %s", page, to)
		}
	}
}

// commands has a page for each command and subcommand.
const commands = "docs/reference/commands"

// Commands compares the pages of a command and its subcommands with the command.
func Commands(t *testing.T, root *cobra.Command, update bool) {
	t.Helper()
	pages, err := commandPages(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name, page := range pages {
		Document(t, filepath.Join(commands, name), append([]byte(Written), page...), update)
		names = append(names, name)
	}
	OnlyThese(t, commands, root.Name(), names)
}

// Block compares a part of a document, between "<!-- NAME -->" and "<!-- end NAME -->", with the text that the
// program gives. With update it writes that part first.
func Block(t *testing.T, file, name, text string, update bool) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(Root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, ok1 := strings.Cut(string(page), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no part between %q and %q", file, begin, end)
	}
	Document(t, file, []byte(before+begin+text+end+after), update)
}
