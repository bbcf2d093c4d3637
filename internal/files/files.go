// SPDX-License-Identifier: Apache-2.0

// Package files reads the files of the machine that is looked at, as package os
// does. A test can come in between: a sysfs changes while it is read, and answers
// with errors.
package files

import (
	"os"
	"path/filepath"

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

// Open is os.Open.
func Open(name string) (*os.File, error) { return asked("open", name, os.Open) }

// ReadFile is os.ReadFile with half of its system calls: attributes are small and
// many, and none is ever waited for.
func ReadFile(name string) ([]byte, error) { return ReadFileAt(unix.AT_FDCWD, name, name) }

// ReadFileAt reads a file of a directory that is open, the way to which need not be
// looked up again; path is its whole name.
func ReadFileAt(dir int, name, path string) ([]byte, error) {
	if err := Asked("open", path); err != nil {
		return nil, err
	}
	fd, err := again(func() (int, error) { return unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var out []byte
	var page [8 << 10]byte // an attribute of sysfs is a page at most, of most processors
	for {
		n, err := again(func() (int, error) { return unix.Read(fd, page[:]) })
		if err != nil {
			return out, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return out, nil
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

// ReadDir is os.ReadDir.
func ReadDir(name string) ([]os.DirEntry, error) { return asked("open", name, os.ReadDir) }

// Readlink is os.Readlink.
func Readlink(name string) (string, error) { return asked("readlink", name, os.Readlink) }

// Stat is os.Stat.
func Stat(name string) (os.FileInfo, error) { return asked("stat", name, os.Stat) }

// Lstat is os.Lstat.
func Lstat(name string) (os.FileInfo, error) { return asked("lstat", name, os.Lstat) }

// EvalSymlinks is filepath.EvalSymlinks.
func EvalSymlinks(name string) (string, error) {
	return asked("lstat", name, filepath.EvalSymlinks)
}
