// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// each confines a directory in each of the ways, and calls f. It fails if f waits for a file, takes much memory, or
// leaves descriptors open.
func each(t *testing.T, root string, f func(t *testing.T)) {
	t.Helper()
	const memory, patience = 128 << 20, 2 * time.Minute
	if r, w, err := os.Pipe(); err == nil { // Go opens descriptors for itself then
		_, _ = r.Close(), w.Close()
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			open := descriptors(t)
			_, release := w.confine(t, root)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				f(t)
			}()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("it waits for a file")
			}
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > memory {
				t.Errorf("it took %d MiB", took>>20)
			}
			release()
			if left := descriptors(t); left != open {
				t.Errorf("%d descriptors are open, before %d", left, open)
			}
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no procfs counts descriptors here")
	}
	return len(all)
}

// refused reads a file by each function, and fails unless each says what the file is. It can be looked at.
func refused(t *testing.T, root, name, what string) {
	t.Helper()
	full := filepath.Join(root, name)
	_, err1 := ReadFile(full)
	f, err2 := Open(full)
	if err2 == nil {
		_ = f.Close()
	}
	dir, err := OpenDir(filepath.Dir(full))
	if err != nil {
		t.Fatal(err)
	}
	_, err3 := dir.ReadFile(filepath.Base(full))
	_ = dir.Close()
	for _, err := range []error{err1, err2, err3} {
		p, ok := errors.AsType[*fs.PathError](err)
		if !errors.Is(err, ErrIrregular) || !strings.Contains(fmt.Sprint(err), what) || !ok || p.Path != full {
			t.Errorf("%v", err)
		}
	}
	if _, err := ReadDir(full); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("as a directory: %v", err)
	}
	if st, err := Stat(full); err != nil || st.Mode().IsRegular() {
		t.Errorf("%v, %v", st, err)
	}
	if real, err := EvalSymlinks(full); real == "" || err != nil {
		t.Errorf("%q, %v", real, err)
	}
}

func mknod(t *testing.T, root, name string, mode uint32, device uint64) {
	t.Helper()
	name = filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	switch err := unix.Mknod(name, mode|0o600, int(device)); {
	case errors.Is(err, unix.EPERM):
		t.Skip("no device node can be made here: ", err)
	case err != nil:
		t.Fatal(err)
	}
}

func TestConfinedPipeIsNotWaitedFor(t *testing.T) {
	root := t.TempDir()
	mknod(t, root, "sys/pipe", unix.S_IFIFO, 0)
	put(t, root, map[string]string{"link": "-> /sys/pipe"})
	each(t, root, func(t *testing.T) {
		refused(t, root, "sys/pipe", "a pipe")
		refused(t, root, "link", "a pipe")
	})
}

func TestConfinedSocketIsNotRead(t *testing.T) {
	root := t.TempDir()
	mknod(t, root, "socket", unix.S_IFSOCK, 0)
	each(t, root, func(t *testing.T) { refused(t, root, "socket", "a socket") })
}

// No driver has the first device of each kind, so to open it is ENXIO. The second one can be opened.
func TestConfinedDeviceIsNotOpened(t *testing.T) {
	root := t.TempDir()
	mknod(t, root, "dev/local", unix.S_IFCHR, unix.Mkdev(60, 0))
	mknod(t, root, "dev/zero", unix.S_IFCHR, unix.Mkdev(1, 5))
	mknod(t, root, "dev/disk", unix.S_IFBLK, unix.Mkdev(60, 0))
	put(t, root, map[string]string{"link": "-> /dev/zero"})
	each(t, root, func(t *testing.T) {
		refused(t, root, "dev/local", "the character device 60:0")
		refused(t, root, "dev/zero", "the character device 1:5")
		refused(t, root, "link", "the character device 1:5")
		refused(t, root, "dev/disk", "the block device 60:0")
	})
}

// The log of the kernel that runs is read where it belongs, and a copy cannot show it as something else.
func TestConfinedLogIsRead(t *testing.T) {
	root := t.TempDir()
	mknod(t, root, "dev/kmsg", unix.S_IFCHR, unix.Mkdev(1, 11))
	mknod(t, root, "sys/vendor", unix.S_IFCHR, unix.Mkdev(1, 11))
	put(t, root, map[string]string{"link": "-> /dev/kmsg"})
	if f, err := os.Open(filepath.Join(root, "dev/kmsg")); err != nil {
		t.Skip("the log cannot be read here: ", err)
	} else {
		_ = f.Close()
	}
	each(t, root, func(t *testing.T) {
		all, err := ReadFile(filepath.Join(root, "dev/kmsg"))
		if err != nil || !bytes.HasSuffix(all, []byte("\n")) {
			t.Errorf("%d bytes, %v", len(all), err)
		}
		f, err := Open(root + "//dev/./kmsg")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if parts, err := io.ReadAll(f); err != nil || !bytes.HasPrefix(parts, all[:min(len(all), 1000)]) {
			t.Errorf("in parts: %d bytes, %v", len(parts), err)
		}
		refused(t, root, "sys/vendor", "the character device 1:11")
		refused(t, root, "link", "the character device 1:11")
	})
}

// A link that leads to a file of this machine leads to the copy's file of that name, or nowhere.
func TestConfinedLinksStayInTheCopy(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	put(t, outside, map[string]string{"secret": "theirs"})
	put(t, root, map[string]string{
		"zero": "-> /dev/zero", "passwd": "-> /etc/passwd", "etc/passwd": "ours", "a/b/up": "-> ../../../../../../../etc/passwd",
		"root": "-> /", "dir": "-> " + outside, "theirs": "-> " + outside + "/secret", "rel": "-> ../" + filepath.Base(outside) + "/secret",
		"magic": "-> /proc/self/fd/0", "proc/self/fd/0": "-> /etc/passwd",
	})
	each(t, root, func(t *testing.T) {
		for _, name := range []string{"passwd", "a/b/up", "root/etc/passwd", "../../etc/passwd", "root/../../etc/passwd", "magic", "proc/self/fd/0"} {
			if data, err := ReadFile(root + "/" + name); string(data) != "ours" || err != nil {
				t.Errorf("%s: %q, %v", name, data, err)
			}
			if real, err := EvalSymlinks(root + "/" + name); real != filepath.Join(root, "etc/passwd") || err != nil {
				t.Errorf("%s: %q, %v", name, real, err)
			}
		}
		for _, name := range []string{"zero", "dir", "dir/secret", "theirs", "rel", "../" + filepath.Base(outside) + "/secret"} {
			name = root + "/" + name
			data, err1 := ReadFile(name)
			_, err2 := Stat(name)
			_, err3 := EvalSymlinks(name)
			_, err4 := ReadDir(name)
			for _, err := range []error{err1, err2, err3, err4} {
				if !errors.Is(err, unix.ENOENT) {
					t.Errorf("%s: %q, %v", name, data, err)
				}
			}
		}
		dir, err := OpenDir(root)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if data, err := dir.ReadFile("theirs"); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%q, %v", data, err)
		}
		if data, err := dir.ReadFile("passwd"); string(data) != "ours" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
	})
}

// A link of procfs that leads to an open file leads out of any directory.
func TestConfinedMagicLinksAreNotFollowed(t *testing.T) {
	outside := t.TempDir()
	put(t, outside, map[string]string{"secret": "theirs"})
	f, err := os.Open(filepath.Join(outside, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	name := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if data, err := os.ReadFile(name); string(data) != "theirs" {
		t.Skip("no procfs has open files here: ", err)
	}
	each(t, "/proc", func(t *testing.T) {
		dir, err := OpenDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		data, err := ReadFile(name)
		if err == nil {
			t.Errorf("%q", data)
		}
		if data, err = dir.ReadFile(filepath.Base(name)); err == nil {
			t.Errorf("in the directory: %q", data)
		}
		// openat2 follows none, and the walk looks for the file that the text of the link names.
		if _, err = Stat("/proc/self/root/etc"); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOENT) {
			t.Errorf("the root of a process: %v", err)
		}
		if text, err := Readlink(name); text != f.Name() || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// Files of procfs and sysfs are read to their end, whatever their size is said to be.
func TestConfinedFilesWithoutASizeAreReadToTheirEnd(t *testing.T) {
	for root, name := range map[string]string{"/proc": "/proc/filesystems", "/sys": "/sys/devices/system/cpu/online"} {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Skip(err)
		}
		each(t, root, func(t *testing.T) {
			if got, err := ReadFile(name); !bytes.Equal(got, want) || err != nil {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			f, err := Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if got, err := io.ReadAll(f); !bytes.Equal(got, want) || err != nil {
				t.Errorf("%s in parts: %q, %v", name, got, err)
			}
		})
	}
}

// Links may follow each other 40 times, as in the kernel.
func TestConfinedLoopsEnd(t *testing.T) {
	root := t.TempDir()
	all := map[string]string{"0": "end", "loop": "-> loop", "ping": "-> /pong", "pong": "-> ping", "deep": "-> deep/deep"}
	for i := range 42 {
		all[fmt.Sprint(i+1)] = "-> " + strings.Repeat("/", i%2) + fmt.Sprint(i)
	}
	put(t, root, all)
	each(t, root, func(t *testing.T) {
		for name, want := range map[string]error{"40": nil, "41": unix.ELOOP, "loop": unix.ELOOP, "ping": unix.ELOOP, "deep": unix.ELOOP, "loop/a": unix.ELOOP} {
			_, err1 := ReadFile(filepath.Join(root, name))
			_, err2 := Stat(filepath.Join(root, name))
			_, err3 := EvalSymlinks(filepath.Join(root, name))
			for _, err := range []error{err1, err2, err3} {
				if !errors.Is(err, want) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}

// The longest way that 40 links can be: each is of the longest text there is, and of two directories over and over.
func TestConfinedLinksOfGreatLengthEnd(t *testing.T) {
	root := t.TempDir()
	all := map[string]string{"d/x": "", "0": "text"}
	for i := range linkLimit {
		next := fmt.Sprint(i)
		all[fmt.Sprint(i+1)] = "-> " + strings.Repeat("d/../", (unix.PathMax-1-len(next))/len("d/../")) + next
	}
	put(t, root, all)
	each(t, root, func(t *testing.T) {
		for range 3 {
			if data, err := ReadFile(filepath.Join(root, fmt.Sprint(linkLimit))); string(data) != "text" || err != nil {
				t.Errorf("%q, %v", data, err)
			}
		}
	})
}

// Only the walk has a limit of its own. A file so deep is not found, and no descriptors are left.
func TestConfinedDepthIsBounded(t *testing.T) {
	root := t.TempDir()
	deep := strings.Repeat("d/", depthLimit)
	put(t, root, map[string]string{deep + "file": "text", deep + "d/file": "text"})
	each(t, root, func(t *testing.T) {
		if data, err := ReadFile(filepath.Join(root, deep, "file")); string(data) != "text" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
		if _, err := ReadFile(filepath.Join(root, deep, "d/file")); err != nil && !errors.Is(err, unix.ENAMETOOLONG) {
			t.Error(err)
		}
	})
}
