// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrIrregular is the error for a file of a copy that is not read: opening it could wait or have an effect. What
// wraps it says which kind of file it is.
var ErrIrregular = errors.New("not a regular file")

// file is a file of a copy: its name from the copy's root on, and the whole name that it was asked for by.
type file struct {
	copy     *confined
	in, name string
}

// of calls f with a file of the copy, for an operation.
func of[T any](c *confined, op, name string, f func(file) (T, error)) (out T, err error) {
	in, _ := c.inside(name)
	if err = c.take(); err == nil {
		out, err = f(file{c, in, name})
	}
	return out, wrapped(op, name, err)
}

func (c *confined) Open(name string) (io.ReadCloser, error)    { return of(c, "open", name, file.stream) }
func (c *confined) ReadFile(name string) ([]byte, error)       { return of(c, "open", name, file.read) }
func (c *confined) OpenDir(name string) (Dir, error)           { return of(c, "open", name, file.dir) }
func (c *confined) ReadDir(name string) ([]fs.DirEntry, error) { return of(c, "open", name, file.list) }
func (c *confined) Readlink(name string) (string, error) {
	return of(c, "readlink", name, file.readlink)
}
func (c *confined) Stat(name string) (fs.FileInfo, error)    { return of(c, "stat", name, file.stat) }
func (c *confined) Lstat(name string) (fs.FileInfo, error)   { return of(c, "lstat", name, file.lstat) }
func (c *confined) EvalSymlinks(name string) (string, error) { return of(c, "lstat", name, file.real) }

// check says why a file is not read.
func (f file) check(st *syscall.Stat_t) error {
	what := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return unix.EISDIR
	case unix.S_IFLNK: // that was a file when its name was looked up
		return unix.ELOOP
	case unix.S_IFIFO:
		what = "a pipe"
	case unix.S_IFSOCK:
		what = "a socket"
	case unix.S_IFCHR:
		if f.log(st) {
			return nil
		}
		what = fmt.Sprintf("the character device %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	case unix.S_IFBLK:
		what = fmt.Sprintf("the block device %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	default:
		what = fmt.Sprintf("a file of the unknown kind %#o", st.Mode&unix.S_IFMT)
	}
	return fmt.Errorf("%w: it is %s", ErrIrregular, what)
}

// log reports the character device of the kernel's log (1:11), at dev/kmsg only.
func (f file) log(st *syscall.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 11) && path.Clean(f.in) == "/dev/kmsg"
}

// open opens the file for reading.
func (f file) open() (fd int, st syscall.Stat_t, err error) {
	found, err := f.copy.lookup(f.in, unix.O_PATH)
	if err != nil {
		return -1, st, err
	}
	return f.openFound(found, func() (int, error) { return f.copy.lookup(f.in, reading) })
}

// openFound opens for reading what a descriptor of O_PATH has, and closes that descriptor. A name may lead to another
// file each time, and the descriptor does not, so it is opened by its name in a procfs. Without one the file is looked
// up anew, and a device that was put in its place since is opened, but not read.
func (f file) openFound(found int, anew func() (int, error)) (fd int, st syscall.Stat_t, err error) {
	defer unix.Close(found)
	if err = syscall.Fstat(found, &st); err != nil {
		return -1, st, err
	}
	if err = f.check(&st); err != nil {
		return -1, st, err
	}
	if f.copy.self >= 0 {
		fd, err = f.copy.reopen(found)
		return fd, st, err
	}
	if fd, err = anew(); err != nil {
		return -1, st, err
	}
	if err = syscall.Fstat(fd, &st); err == nil {
		err = f.check(&st)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// read is all that is in the file.
func (f file) read() ([]byte, error) { return f.contents(f.open()) }

// contents are what an open file has. It closes the file.
func (f file) contents(fd int, st syscall.Stat_t, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	limit := limit(f.in)
	if st.Size > limit { // a file of sysfs may be the memory of a device
		return nil, &fs.PathError{Op: "read", Path: f.name, Err: tooLarge(limit)}
	}
	var room []byte
	if st.Size > readSize { // the size of a file in sysfs or procfs says nothing, and is no more than a page
		room = make([]byte, 0, st.Size)
	}
	data, err := readAll(fd, f.name, room, limit)
	if errors.Is(err, unix.EAGAIN) && f.log(&st) { // there are no more records
		err = nil
	}
	return data, err
}

// readCopy reads a file of a directory that is in a copy. The way to a link is looked up again from the copy's root.
func (d Dir) readCopy(name, path string) ([]byte, error) {
	if err := d.file.copy.take(); err != nil {
		return nil, err
	}
	f := file{d.file.copy, d.file.in + "/" + name, path}
	if strings.Contains(name, "/") || name == "" || name == "." || name == ".." {
		return f.read()
	}
	open := func(flags int) (int, error) {
		return f.copy.held(func() (int, error) { return openat(d.fd, name, flags) })
	}
	found, err := open(unix.O_PATH)
	if err != nil {
		return nil, err
	}
	data, err := f.contents(f.openFound(found, func() (int, error) { return open(reading) }))
	if err == unix.ELOOP {
		return f.read()
	}
	return data, err
}

// dir opens the directory.
func (f file) dir() (Dir, error) {
	fd, err := f.copy.lookup(f.in, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return Dir{}, err
	}
	return Dir{fd, f.name, f}, nil
}

// readlink is the text of the link.
func (f file) readlink() (string, error) {
	fd, err := f.copy.lookup(f.in, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	text, err := readlinkat(fd, "")
	if err == unix.ENOENT { // so the kernel says that the file is no link
		err = unix.EINVAL
	}
	return text, err
}

// real is the file's name without links.
func (f file) real() (string, error) {
	in, err := f.copy.canonical(f.in)
	if err != nil {
		return "", err
	}
	return filepath.Join(f.copy.dir, in), nil
}

func (f file) stat() (fs.FileInfo, error)  { return f.attributes(0) }
func (f file) lstat() (fs.FileInfo, error) { return f.attributes(unix.O_NOFOLLOW) }

func (f file) attributes(flags int) (fs.FileInfo, error) {
	fd, err := f.copy.lookup(f.in, unix.O_PATH|flags)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	a := &attributes{name: filepath.Base(f.name)}
	if err := syscall.Fstat(fd, &a.st); err != nil {
		return nil, err
	}
	return a, nil
}

// stream opens the file to be read in parts.
func (f file) stream() (io.ReadCloser, error) {
	fd, st, err := f.open()
	switch {
	case err == unix.EISDIR:
		return io.NopCloser(openDirectory(f.name)), nil
	case err != nil:
		return nil, err
	}
	limit := limit(f.in)
	if st.Size > limit {
		_ = unix.Close(fd)
		return nil, tooLarge(limit)
	}
	s := &stream{fd: fd, name: f.name, limit: limit, left: limit}
	if f.log(&st) {
		return newLogStream(s), nil
	}
	return s, nil
}
