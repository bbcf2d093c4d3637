// SPDX-License-Identifier: Apache-2.0

package files

import (
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Before is called ahead of each access with the name of the file; its error is
// the answer. Tests set it, and nothing else does.
var Before func(name string) error

// Asked is for those who open files by other means.
func Asked(op, name string) error {
	if Before == nil {
		return nil
	}
	if err := Before(name); err != nil {
		return &os.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// asked calls f, unless a test answers in its place.
func asked[T any](op, name string, f func(string) (T, error)) (T, error) {
	if err := Asked(op, name); err != nil {
		var none T
		return none, err
	}
	return f(name)
}

// Open is os.Open, for reading. A file of a copy that has more than such files have ends with an error that is [ErrTooLarge].
func Open(name string) (io.ReadCloser, error) {
	return asked("open", name, func(name string) (io.ReadCloser, error) {
		if f, ok, err := in("open", name, true, reader, file.stream); ok {
			return f, err
		}
		return os.Open(name)
	})
}

// ReadFile is os.ReadFile with half of its system calls: attributes are small and
// many, and none is ever waited for.
func ReadFile(name string) ([]byte, error) { return (Dir{fd: unix.AT_FDCWD}).read(name, name) }

// Dir is a directory that is open: the way to its files need not be looked up again.
type Dir struct {
	fd   int
	name string
	file file // the directory in a copy
}

// OpenDir opens a directory.
func OpenDir(name string) (Dir, error) {
	ofTree := func(n *node) (Dir, error) {
		_, err := entries(n)
		return Dir{fd: unix.AT_FDCWD, name: name}, err
	}
	if d, ok, err := in("open", name, true, ofTree, file.dir); ok {
		return d, err
	}
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Dir{}, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return Dir{fd: fd, name: name}, nil
}

// Close closes the directory.
func (d Dir) Close() error {
	if d.fd == unix.AT_FDCWD {
		return nil
	}
	return unix.Close(d.fd)
}

// ReadFile reads a file of the directory.
func (d Dir) ReadFile(name string) ([]byte, error) { return d.read(name, d.name+"/"+name) }

// read reads a file; path is its whole name.
func (d Dir) read(name, path string) ([]byte, error) {
	if err := Asked("open", path); err != nil {
		return nil, err
	}
	if d.file.copy != nil {
		data, err := d.readCopy(name, path)
		return data, wrapped("open", path, err)
	}
	if data, ok, err := in("open", path, true, copyOfContents, file.read); ok {
		return data, err
	}
	fd, err := again(func() (int, error) { return unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return readAll(fd, path, nil, math.MaxInt64)
}

// readSize is how much is read at once: an attribute of sysfs is a page at most, of most processors.
const readSize = 8 << 10

// readAll reads a file to its end, behind what out has. It is an error if the file has more than limit bytes.
func readAll(fd int, name string, out []byte, limit int64) ([]byte, error) {
	var page [readSize]byte
	for {
		n, err := again(func() (int, error) { return unix.Read(fd, page[:]) })
		if err != nil {
			return out, &os.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 {
			return out, nil
		}
		if int64(len(out)+n) > limit {
			return nil, &os.PathError{Op: "read", Path: name, Err: tooLarge(limit)}
		}
		out = append(out, page[:n]...)
	}
}

func again(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// either reads a file of a tree, of a copy, or of this machine, by one function each.
func either[T any](op string, follow bool, ofTree func(*node) (T, error), ofCopy func(file) (T, error),
	ofMachine func(string) (T, error)) func(string) (T, error) {
	return func(name string) (T, error) {
		if out, ok, err := in(op, name, follow, ofTree, ofCopy); ok {
			return out, err
		}
		return ofMachine(name)
	}
}

// ReadDir is os.ReadDir.
func ReadDir(name string) ([]os.DirEntry, error) {
	return asked("open", name, either("open", true, entries, file.list, os.ReadDir))
}

// Readlink is os.Readlink.
func Readlink(name string) (string, error) {
	return asked("readlink", name, either("readlink", false, target, file.readlink, os.Readlink))
}

// Stat is os.Stat.
func Stat(name string) (os.FileInfo, error) {
	return asked("stat", name, either("stat", true, named(name), file.stat, os.Stat))
}

// Lstat is os.Lstat.
func Lstat(name string) (os.FileInfo, error) {
	return asked("lstat", name, either("lstat", false, named(name), file.lstat, os.Lstat))
}

// EvalSymlinks is filepath.EvalSymlinks.
func EvalSymlinks(name string) (string, error) { return asked("lstat", name, Canonical) }
