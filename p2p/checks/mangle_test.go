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

// manglings are the states in which a reader can find a file, a link or a directory.
var manglings = []string{"absent", "unreadable", "empty", "noise", "half", "directory"}

// mangled calls f while a file, link or directory is in such a state.
func mangled(t *testing.T, root, name, how string, f func()) {
	t.Helper()
	aside := filepath.Join(root, "aside") // no check lists the root
	st, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	if st.Mode().IsRegular() {
		if text, err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(name, aside); err != nil {
		t.Fatal(err)
	}
	switch how {
	case "unreadable":
		err = os.Symlink(filepath.Base(name), name)
	case "empty":
		err = os.WriteFile(name, nil, 0o600)
	case "noise":
		err = os.WriteFile(name, []byte("\xff\xfe noise\n\x00"), 0o600)
	case "half":
		err = os.WriteFile(name, text[:len(text)/2], 0o600)
	case "directory":
		err = os.Mkdir(name, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	f()
	if err := errors.Join(os.RemoveAll(name), os.Rename(aside, name)); err != nil {
		t.Fatal(err)
	}
}

// reads are the files below root that f asks for, and that are there: by their
// real names, in the order in which they were first asked for.
func reads(t *testing.T, root string, f func()) []string {
	t.Helper()
	var out []string
	real := map[string]string{} // directories
	seen := map[string]bool{}
	stop := testenv.WatchFiles(t, root, func(name string) error {
		dir := filepath.Dir(name)
		if _, ok := real[dir]; !ok {
			real[dir], _ = filepath.EvalSymlinks(dir)
		}
		name = filepath.Join(real[dir], filepath.Base(name))
		if !seen[name] && strings.HasPrefix(name, root+"/") {
			seen[name] = true
			if _, err := os.Lstat(name); err == nil {
				out = append(out, name)
			}
		}
		return nil
	})
	defer stop()
	f()
	return out
}

// without are those of all that are not in some.
func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}
