// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// meanwhile calls change again and again while f runs.
func meanwhile(t *testing.T, change func() error, f func()) {
	t.Helper()
	end := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			if err := change(); err != nil {
				t.Errorf("files cannot be exchanged here: %v", err)
				return
			}
		}
	})
	defer busy.Wait()
	defer close(end)
	f()
}

func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// theirs fails if a name leads to what is outside, or if the kernel was not asked again.
func theirs(t *testing.T, root, name string) {
	t.Helper()
	full := root + "/" + name
	data, err1 := ReadFile(full)
	list, err2 := ReadDir(filepath.Dir(full))
	real, err3 := EvalSymlinks(full)
	_, err4 := Stat(full)
	if string(data) == "theirs" {
		t.Errorf("%s: a file outside was read", name)
	}
	for _, e := range list {
		if e.Name() == "mark" {
			t.Errorf("%s: a directory outside was read", name)
		}
	}
	if err3 == nil && !strings.HasPrefix(real, root+"/") {
		t.Errorf("%s: it is %s", name, real)
	}
	if dir, err := OpenDir(filepath.Dir(full)); err == nil {
		if data, _ := dir.ReadFile("file"); string(data) == "theirs" {
			t.Errorf("%s: a file outside was read by a directory", name)
		}
		_ = dir.Close()
	}
	if err := errors.Join(err1, err2, err3, err4); errors.Is(err, unix.EAGAIN) {
		t.Errorf("%s: %v", name, err)
	}
}

const rounds = 2000

// A directory is exchanged for a link that leads out, again and again, while its files are read.
func TestConfinedDirectoryBecomesALink(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	put(t, outside, map[string]string{"file": "theirs", "mark": ""})
	put(t, root, map[string]string{"a/dir/file": "ours", "a/dir/below/file": "ours", "a/link": "-> " + outside})
	each(t, root, func(t *testing.T) {
		dir, link := filepath.Join(root, "a/dir"), filepath.Join(root, "a/link")
		meanwhile(t, func() error { return exchange(dir, link) }, func() {
			for range rounds {
				theirs(t, root, "a/dir/file")
				theirs(t, root, "a/dir/below/../file")
			}
		})
	})
}

// A file is exchanged for a link that leads out, while an open directory is asked for it.
func TestConfinedFileBecomesALink(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	put(t, outside, map[string]string{"file": "theirs"})
	put(t, root, map[string]string{"a/file": "ours", "a/link": "-> " + outside + "/file"})
	each(t, root, func(t *testing.T) {
		file, link := filepath.Join(root, "a/file"), filepath.Join(root, "a/link")
		meanwhile(t, func() error { return exchange(file, link) }, func() {
			for range rounds {
				theirs(t, root, "a/file")
			}
		})
	})
}

// A file is replaced by another of its name while its real name is asked for. A procfs says of the first that it was
// removed.
func TestConfinedFileIsReplaced(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"a/file": ""})
	each(t, root, func(t *testing.T) {
		name, next := filepath.Join(root, "a/file"), filepath.Join(root, "a/next")
		replace := func() error {
			return errors.Join(os.WriteFile(next, nil, 0o600), os.Rename(next, name))
		}
		meanwhile(t, replace, func() {
			for range rounds {
				if real, err := EvalSymlinks(name); real != name || err != nil {
					t.Fatalf("%q, %v", real, err)
				}
			}
		})
	})
}

// A directory is moved out of the copy, again and again. The way up from it does not lead to where it then is.
func TestConfinedDirectoryIsMovedOut(t *testing.T) {
	top := t.TempDir()
	root, outside := filepath.Join(top, "root"), filepath.Join(top, "outside")
	put(t, outside, map[string]string{"file": "theirs", "mark": "", "moved/file": "", "file2": ""})
	put(t, root, map[string]string{"a/file": "ours", "a/moves/below/file": ""})
	each(t, root, func(t *testing.T) {
		in, out := filepath.Join(root, "a/moves"), filepath.Join(outside, "moved")
		meanwhile(t, func() error { return exchange(in, out) }, func() {
			for range rounds {
				theirs(t, root, "a/moves/../file")
				theirs(t, root, "a/moves/below/../../file")
			}
		})
	})
}

// The copy ends while it is in use: calls that run then end well, and no descriptor is used that another file may have.
func TestConfinedCopyIsReleasedDuringUse(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"a/file": "ours", "a/link": "-> /a/file", "list/x": ""})
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			open := descriptors(t)
			for range 50 {
				c, release := w.confine(t, root)
				dir, err := OpenDir(filepath.Join(root, "a"))
				if err != nil {
					t.Fatal(err)
				}
				f := file{c, "/a/link", root + "/a/link"}
				var busy sync.WaitGroup
				started := make(chan struct{}, 2)
				for _, read := range []func() ([]byte, error){f.read, func() ([]byte, error) { return dir.ReadFile("link") }} {
					busy.Go(func() {
						for i := range 1 << 20 {
							data, err := read()
							if errors.Is(err, fs.ErrClosed) {
								return
							}
							if string(data) != "ours" || err != nil {
								t.Errorf("%q, %v", data, err)
								return
							}
							if i == 0 {
								started <- struct{}{}
							}
						}
						t.Error("it goes on after the end")
					})
				}
				<-started
				<-started
				release()
				release()
				busy.Wait()
				if _, err := dir.ReadFile("file"); !errors.Is(err, fs.ErrClosed) {
					t.Errorf("after the end: %v", err)
				}
				if _, err := f.real(); !errors.Is(err, fs.ErrClosed) {
					t.Errorf("after the end: %v", err)
				}
				_ = dir.Close()
			}
			if left := descriptors(t); left != open {
				t.Errorf("%d descriptors are open, before %d", left, open)
			}
		})
	}
}
