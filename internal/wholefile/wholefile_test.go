// SPDX-License-Identifier: Apache-2.0

package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// has fails if the folder has other files than this one, or the file another text or mode.
func has(t *testing.T, file, want string, mode os.FileMode) {
	t.Helper()
	got, err := os.ReadFile(file)
	st, err2 := os.Stat(file)
	if err != nil || err2 != nil || string(got) != want || st.Mode().Perm() != mode {
		t.Fatalf("%q, %v, %v %v", got, st.Mode(), err, err2)
	}
	if all, err := os.ReadDir(filepath.Dir(file)); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
}

func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := Write(file, 0o644, text("one")); err != nil {
		t.Fatal(err)
	}
	has(t, file, "one", 0o644)
	if err := Write(file, 0o600, text("two")); err != nil {
		t.Fatal(err)
	}
	has(t, file, "two", 0o600)
	odd := errors.New("odd")
	if err := Write(file, 0o644, func(w io.Writer) error { return errors.Join(text("three")(w), odd) }); !errors.Is(err, odd) {
		t.Error(err)
	}
	has(t, file, "two", 0o600)
	if err := Write(filepath.Join(file, "below"), 0o644, text("")); err == nil {
		t.Error("written below a file")
	}
}

// A directory, or a link to elsewhere, that has come to the place meanwhile stays.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for name, comes := range map[string]func(string) error{
		"link":      func(s string) error { return os.Symlink(elsewhere, s) },
		"directory": func(s string) error { return os.Mkdir(s, 0o700) },
	} {
		file := filepath.Join(dir, name)
		w, err := Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(text("x")(w), comes(file)); err != nil {
			t.Fatal(err)
		}
		if err := w.Keep(0o644); err == nil {
			t.Errorf("%s was replaced", name)
		}
		if err := w.Drop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("the link was followed")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("%v %v", all, err)
	}
}

// Other users may not read a file before Keep.
func TestMode(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if st, err := all[0].Info(); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if err := w.Drop(); err != nil {
		t.Error(err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
		t.Errorf("%v %v", all, err)
	}
}

func TestReplace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	for _, want := range []string{"one", "two"} {
		if err := Replace(file, []byte(want), 0o640); err != nil {
			t.Fatal(err)
		}
		has(t, file, want, 0o640)
	}
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(folder, []byte("three"), 0o640); err == nil {
		t.Error("a folder was replaced")
	}
	if all, err := os.ReadDir(filepath.Dir(folder)); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
}
