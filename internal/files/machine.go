// SPDX-License-Identifier: Apache-2.0

package files

import (
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Machine answers for the files of this machine.
var Machine System = thisMachine{}

type thisMachine struct{}

func (thisMachine) Open(name string) (io.ReadCloser, error)    { return os.Open(name) }
func (thisMachine) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (thisMachine) Readlink(name string) (string, error)       { return os.Readlink(name) }
func (thisMachine) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (thisMachine) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (thisMachine) EvalSymlinks(name string) (string, error)   { return filepath.EvalSymlinks(name) }
func (thisMachine) ReadFile(name string) ([]byte, error)       { return readAt(unix.AT_FDCWD, name, name) }

func (thisMachine) OpenDir(name string) (Dir, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Dir{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return Dir{fd: fd, name: name}, nil
}

// readAt reads a file of an open directory; path is its whole name.
func readAt(dir int, name, path string) ([]byte, error) {
	fd, err := again(func() (int, error) { return unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
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
			return out, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 {
			return out, nil
		}
		if int64(len(out)+n) > limit {
			return nil, &fs.PathError{Op: "read", Path: name, Err: tooLarge(limit)}
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
