// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhichFilesACopyHas(t *testing.T) {
	for _, test := range []struct{ dir, name, in string }{
		{"/a/b", "/a/b", "/"},
		{"/a/b", "/a/b/", "/"},
		{"/a/b", "/a/b/c/d", "/c/d"},
		{"/a/b", "/a/b/../c", "/../c"},
		{"/a/b", "/a/bc", ""},
		{"/a/b", "/a", ""},
		{"/a/b", "a/b", ""},
		{"/a/b", "", ""},
		{"/a/b/", "/a/b", "/"},
		{"/a/b/", "/a/b/c", "/c"},
		{"/a/b//", "/a/b//c", "//c"},
		{"/a//b", "/a//b/c", "/c"},
		{"/a//b", "/a/b/c", "/c"},
		{"./a", "./a/c", "/c"},
		{"./a", "a/c", "/c"},
		{"./a", "a", "/"},
		{"a/../b", "b/c", "/c"},
		{"../a", "../a/c", "/c"},
		{"..", "../c", "/c"},
		{"..", "..", "/"},
		{"..", "..c", ""},
		{".", ".", "/."},
		{".", "sys", "/sys"},
		{".", "./../sys", "/./../sys"},
		{".", "../sys", ""},
		{".", "..", ""},
		{".", "..sys", "/..sys"},
		{".", "/sys", ""},
		{".", "", ""},
		{"./", "sys", "/sys"},
		{"/", "/", "/"},
		{"/", "/sys", "/sys"},
		{"//", "//sys", "//sys"},
		{"/", "sys", ""},
		{"/", "", ""},
	} {
		c := newDirectory(test.dir, nil)
		if in, ok := c.inside(test.name); ok != (test.in != "") || ok && in != test.in {
			t.Errorf("%q in %q: %q, %v", test.name, test.dir, in, ok)
		}
	}
}

// However the directory is written, a link in it stays there.
func TestConfinedDirectoryIsWrittenInManyWays(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"copy/link": "-> /etc/passwd", "copy/etc/passwd": "ours", "copy/up/x": ""})
	t.Chdir(root)
	for _, dir := range []string{"copy", "copy/", "./copy", "./copy//", root + "/copy", root + "//copy/", "copy/../copy", "copy/up/.."} {
		release, err := Confine(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{filepath.Join(dir, "link"), dir + "/link"} {
			if data, err := ReadFile(name); string(data) != "ours" || err != nil || !Elsewhere(name) {
				t.Errorf("%s: %q, %v", name, data, err)
			}
			if real, err := EvalSymlinks(name); real != filepath.Join(dir, "etc/passwd") || err != nil {
				t.Errorf("%s: %q, %v", name, real, err)
			}
		}
		release()
		if Elsewhere(filepath.Join(dir, "link")) {
			t.Errorf("%s: it is confined after the end", dir)
		}
	}
	t.Chdir("copy")
	release, err := Confine(".")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if data, err := ReadFile("link"); string(data) != "ours" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if real, err := EvalSymlinks("link"); real != "etc/passwd" || err != nil {
		t.Errorf("%q, %v", real, err)
	}
	if real, err := EvalSymlinks("."); real != "." || err != nil {
		t.Errorf("%q, %v", real, err)
	}
}

// The root of this machine is a copy, too, and so is one copy in another.
func TestConfinedCopiesInEachOther(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"etc/mark": "outer", "copy/etc/mark": "inner", "copy/link": "-> /etc/mark", "link": "-> copy/link"})
	for _, dirs := range [][]string{{"/", root, root + "/copy"}, {root + "/copy", root, "/"}} {
		for _, dir := range dirs {
			release, err := Confine(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
		}
		for name, want := range map[string]string{"copy/link": "inner", "link": "outer", "copy/../etc/mark": "inner"} {
			if data, err := ReadFile(root + "/" + name); string(data) != want || err != nil {
				t.Errorf("%s: %q, %v", name, data, err)
			}
		}
		if real, err := EvalSymlinks("/proc/../"); real != "/" || err != nil {
			t.Errorf("%q, %v", real, err)
		}
	}
}

// The real name of a file is told where a procfs says another one: the copy was moved, or the text looks like that of
// a file that was removed.
func TestConfinedNamesOfMovedFiles(t *testing.T) {
	top := t.TempDir()
	root := filepath.Join(top, "copy")
	put(t, root, map[string]string{"a (deleted)": "text", "b": "-> a (deleted)", "d/c": "text"})
	each(t, root, func(t *testing.T) {
		check := func() {
			for name, want := range map[string]string{"b": "a (deleted)", "d/../d/c": "d/c", "": ""} {
				if real, err := EvalSymlinks(root + "/" + name); real != filepath.Join(root, want) || err != nil {
					t.Errorf("%s: %q, %v", name, real, err)
				}
			}
		}
		check()
		for _, to := range []string{filepath.Join(top, "moved"), root + "2"} {
			if err := os.Rename(root, to); err != nil {
				t.Fatal(err)
			}
			check()
			if err := os.Rename(to, root); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The attributes of a directory's files come from the copy as well.
func TestConfinedEntriesAreOfTheCopy(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"dir/link": "-> /etc", "dir/file": "text", "dir/sub/x": "", "way": "-> /dir"})
	mknod(t, root, "dir/pipe", unix.S_IFIFO, 0)
	want := map[string]fs.FileMode{"link": fs.ModeSymlink, "file": 0, "sub": fs.ModeDir, "pipe": fs.ModeNamedPipe}
	each(t, root, func(t *testing.T) {
		list, err := ReadDir(filepath.Join(root, "way"))
		if err != nil || len(list) != len(want) {
			t.Fatalf("%v, %v", list, err)
		}
		for _, e := range list {
			info, err := e.Info()
			onDisk, err2 := os.Lstat(filepath.Join(root, "dir", e.Name()))
			if errors.Join(err, err2) != nil {
				t.Fatal(err, err2)
			}
			if kind := want[e.Name()]; e.Type() != kind || info.Mode() != onDisk.Mode() || e.IsDir() != onDisk.IsDir() || info.Name() != e.Name() {
				t.Errorf("%v, %v, on disk %v", e, info.Mode(), onDisk.Mode())
			}
			if !info.ModTime().Equal(onDisk.ModTime()) || info.Size() != onDisk.Size() || !SameFile(info, onDisk) {
				t.Errorf("%v: %v, %d, on disk %v, %d", e, info.ModTime(), info.Size(), onDisk.ModTime(), onDisk.Size())
			}
		}
	})
}

// The kernel's entries of a directory end where they say, and a file system need not say what they are.
func TestEntriesOfADirectory(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"link": "-> /etc"})
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if mode, err := modeAt(fd, "link"); kind(mode) != fs.ModeSymlink || err != nil {
		t.Errorf("%#o, %v", mode, err)
	}
	if _, err := modeAt(fd, "none"); err != unix.ENOENT {
		t.Error(err)
	}
	page := make([]byte, 256)
	n, err := unix.Getdents(fd, page)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for left := page[:n]; len(left) > 0; {
		var name string
		if name, _, left, err = entry(left); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{".", "..", "link"}) {
		t.Errorf("%q", names)
	}
	for cut := 1; cut < 24; cut++ {
		if _, _, _, err := entry(page[:cut]); err == nil {
			t.Errorf("an entry of %d bytes", cut)
		}
	}
	page[16], page[17] = 0, 0
	if _, _, _, err := entry(page); err == nil {
		t.Error("an entry without a length")
	}
}

// A directory that cannot be confined is an error.
func TestConfineAndItsErrors(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"file": "text"})
	for name, want := range map[string]error{"none": unix.ENOENT, "file": unix.ENOTDIR} {
		if _, err := Confine(filepath.Join(root, name)); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Confine(""); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}

// A directory that is served from before it was confined stays with its System. A lower one has a System of its own.
func TestServe(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"file": "text", "below/file": "text"})
	no := errors.New("no")
	release := Serve(root+"/", refusing{Machine, no})
	defer release()
	leave, err := Confine(root)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	lower := Serve(root+"/below", Machine)
	defer lower()
	for name, want := range map[string]error{"/file": no, "/below/file": nil, "/none": no, "/below/none": unix.ENOENT} {
		if _, err := ReadFile(root + name); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d, err := OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.ReadFile("file"); !errors.Is(err, no) {
		t.Error(err)
	}
	if !Elsewhere(root+"/file") || Elsewhere("/proc/self") || InTree(root+"/file") {
		t.Error("who answers for it?")
	}
	release()
	if data, err := ReadFile(root + "/file"); string(data) != "text" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
}

// refusing reads no file.
type refusing struct {
	System
	err error
}

func (r refusing) ReadFile(string) ([]byte, error) { return nil, r.err }

// A filter of system calls, as containers have it, refuses openat2. The copy is walked then.
func TestConfineWithoutOpenat2(t *testing.T) {
	root := t.TempDir()
	put(t, root, map[string]string{"link": "-> /file", "file": "ours"})
	for _, refusal := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
		filtered := make(chan error)
		go func() {
			defer close(filtered)
			runtime.LockOSThread() // and the thread ends with its filter
			if err := refuse(unix.SYS_OPENAT2, refusal); err != nil {
				filtered <- err
				return
			}
			release, err := Confine(root)
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			if c := systemOf(root).(*confined); !c.walks {
				t.Errorf("openat2 is called where it is %v", refusal)
			}
			if data, err := ReadFile(filepath.Join(root, "link")); string(data) != "ours" || err != nil {
				t.Errorf("%v: %q, %v", refusal, data, err)
			}
		}()
		if err := <-filtered; err != nil {
			t.Skip("system calls cannot be filtered here: ", err)
		}
	}
}
