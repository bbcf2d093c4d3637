// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Unpack writes the files of a txtar archive into a directory of the test's, as Files does.
func Unpack(t testing.TB, archive string) (root string) {
	t.Helper()
	files := map[string]string{}
	for _, f := range txtar.Parse([]byte(archive)).Files {
		files[f.Name] = string(f.Data)
	}
	return Files(t, files)
}

// Files writes files into a directory of the test's. A text "-> TARGET" makes a symbolic link.
func Files(t testing.TB, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = errors.Join(err, os.Symlink(strings.TrimSpace(target), name))
		} else {
			err = errors.Join(err, os.WriteFile(name, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}
