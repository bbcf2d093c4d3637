// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// machineNamed is one of testenv.Machines, or of the corpus.
func machineNamed(t *testing.T, name string) testenv.Tree {
	t.Helper()
	if tree, ok := testenv.Machines[name]; ok {
		return tree()
	}
	corpus := testenv.Corpus(t)
	i := slices.IndexFunc(corpus, func(c testenv.CorpusMachine) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no machine %q", name)
	}
	return corpus[i].Tree
}

// edit changes a machine; the function that it returns changes the written tree.
type edit func(*testenv.Tree) func(t *testing.T, root string)

func put(name, text string) edit {
	return func(f *testenv.Tree) func(*testing.T, string) {
		f.Files[name] = text + "\n"
		return nil
	}
}

// exactly is put without the end of a line.
func exactly(name, text string) edit {
	return func(f *testenv.Tree) func(*testing.T, string) {
		f.Files[name] = text
		return nil
	}
}

// drop takes files away: all below a name.
func drop(name string) edit {
	return func(f *testenv.Tree) func(*testing.T, string) {
		for file := range f.Files {
			if strings.HasPrefix(file, name) {
				delete(f.Files, file)
			}
		}
		delete(f.Texts, name)
		return nil
	}
}

// swap changes the text of the functions, or of files that have it.
func swap(old, text string) edit {
	return func(f *testenv.Tree) func(*testing.T, string) {
		f.Functions = strings.ReplaceAll(f.Functions, old, text)
		f.Config = strings.ReplaceAll(f.Config, old, text)
		f.CPU = strings.ReplaceAll(f.CPU, old, text)
		for name, was := range f.Files {
			f.Files[name] = strings.ReplaceAll(was, old, text)
		}
		return nil
	}
}

func release(r string) edit {
	return func(f *testenv.Tree) func(*testing.T, string) { f.Release = r; return nil }
}

func config(c string) edit {
	return func(f *testenv.Tree) func(*testing.T, string) { f.Config = c; return nil }
}

func cpu(c string) edit {
	return func(f *testenv.Tree) func(*testing.T, string) { f.CPU = c; return nil }
}

func text(name, target string) edit {
	return func(f *testenv.Tree) func(*testing.T, string) { f.Texts[name] = target; return nil }
}

// unreadable makes a file that answers reads with an error, to root as well.
func unreadable(name string) edit {
	return func(*testenv.Tree) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			t.Helper()
			all, err := filepath.Glob(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			if len(all) == 0 {
				all = []string{filepath.Join(root, name)}
			}
			for _, file := range all {
				err1 := os.RemoveAll(file)
				err2 := os.MkdirAll(filepath.Dir(file), 0o755)
				if err := errors.Join(err1, err2, os.Symlink(filepath.Base(file), file)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// gone removes a directory of the written tree.
func gone(name string) edit {
	return func(*testenv.Tree) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			t.Helper()
			all, _ := filepath.Glob(filepath.Join(root, name))
			for _, file := range all {
				if err := os.RemoveAll(file); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// dead makes a function that has fallen off the bus.
func dead(dir string) edit {
	return func(*testenv.Tree) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			t.Helper()
			testenv.WriteFile(t, filepath.Join(root, dir, "config"), strings.Repeat("\xff", 4096))
		}
	}
}

// byVFIO gives the GPUs to vfio-pci.
var byVFIO = swap("driver:amdgpu", "driver:vfio-pci")
