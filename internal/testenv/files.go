// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/files"
)

// WatchFiles calls before ahead of each access of package files to a file at or below a directory of this machine,
// until stop is called or the test ends. An error of before is the answer. So a test makes files fail, changes
// them between two accesses, or counts the accesses.
func WatchFiles(t testing.TB, dir string, before func(name string) error) (stop func()) {
	stop = files.Serve(dir, watched(before))
	t.Cleanup(stop)
	return stop
}

// watched answers as this machine, and asks a function first.
type watched func(name string) error

// ask answers by f, unless the test answers in its place.
func ask[T any](w watched, op, name string, f func(string) (T, error)) (out T, err error) {
	if err := w(name); err != nil {
		return out, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return f(name)
}

func (w watched) Open(name string) (io.ReadCloser, error) {
	return ask(w, "open", name, files.Machine.Open)
}

func (w watched) ReadFile(name string) ([]byte, error) {
	return ask(w, "open", name, files.Machine.ReadFile)
}

func (w watched) OpenDir(name string) (files.Dir, error) {
	return ask(w, "open", name, files.Machine.OpenDir)
}

func (w watched) ReadDir(name string) ([]fs.DirEntry, error) {
	return ask(w, "open", name, files.Machine.ReadDir)
}

func (w watched) Readlink(name string) (string, error) {
	return ask(w, "readlink", name, files.Machine.Readlink)
}

func (w watched) Stat(name string) (fs.FileInfo, error) {
	return ask(w, "stat", name, files.Machine.Stat)
}

func (w watched) Lstat(name string) (fs.FileInfo, error) {
	return ask(w, "lstat", name, files.Machine.Lstat)
}

func (w watched) EvalSymlinks(name string) (string, error) {
	return ask(w, "lstat", name, files.Machine.EvalSymlinks)
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
