// SPDX-License-Identifier: Apache-2.0

package files

import (
	"strings"

	"golang.org/x/sys/unix"
)

// depthLimit is the greatest number of directories above a file that walk finds: each is open meanwhile. The longest
// way in sysfs has about 25.
const depthLimit = 256

// walker is on the way to a file, in a directory of a copy. It has each directory between the copy's root and
// itself open, so that ".." leads to the one that it came through, wherever that was moved meanwhile.
type walker struct {
	root  int
	fds   []int
	names []string
}

func (w *walker) at() int {
	if len(w.fds) == 0 {
		return w.root
	}
	return w.fds[len(w.fds)-1]
}

// up leaves the last n directories.
func (w *walker) up(n int) {
	left := max(0, len(w.fds)-n)
	for _, fd := range w.fds[left:] {
		_ = unix.Close(fd)
	}
	w.fds, w.names = w.fds[:left], w.names[:left]
}

func (w *walker) down(name string) error {
	if len(w.fds) == depthLimit {
		return unix.ENAMETOOLONG
	}
	fd, err := openat(w.at(), name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	w.fds, w.names = append(w.fds, fd), append(w.names, name)
	return nil
}

// walk finds a file as openat2 does, for kernels that do not have or permit it, and says its name in the copy without
// links. The kernel follows no link for it: each part of the name is opened in the directory before, which is open.
// A link of procfs that leads to a file by no name, to which openat2 answers ELOOP, leads where its text says.
func (c *confined) walk(in string, flags int) (fd int, real string, err error) {
	w := walker{root: c.fd}
	defer func() { w.up(len(w.fds)) }()
	for links, left := 0, in; ; {
		part, rest, more := strings.Cut(left, "/")
		left = rest
		var link string
		switch {
		case part == ".." || part == "." || part == "":
			if part == ".." {
				w.up(1)
			}
			if !more {
				return w.last(".", flags)
			}
			continue
		case more:
			err = w.down(part)
			if err == nil {
				continue
			}
			if err != unix.ENOTDIR && err != unix.ELOOP {
				return -1, "", err
			}
			link, err = readlinkat(w.at(), part)
			if err == unix.EINVAL { // neither a directory nor a link
				err = unix.ENOTDIR
			}
		case flags&unix.O_NOFOLLOW != 0:
			return w.last(part, flags)
		default:
			link, err = readlinkat(w.at(), part)
			if err == unix.EINVAL {
				return w.last(part, flags)
			}
		}
		if err != nil {
			return -1, "", err
		}
		if links++; links > linkLimit {
			return -1, "", unix.ELOOP
		}
		if strings.HasPrefix(link, "/") {
			w.up(len(w.fds))
		}
		if more {
			link += "/" + left
		}
		left = link
	}
}

// last opens the file at the end of the way.
func (w *walker) last(name string, flags int) (fd int, real string, err error) {
	if fd, err = openat(w.at(), name, flags); err != nil {
		return -1, "", err
	}
	real = "/" + strings.Join(w.names, "/")
	if name != "." {
		real = strings.TrimSuffix(real, "/") + "/" + name
	}
	return fd, real, nil
}

// openat opens a file of an open directory. The name has one part, and if the file is a link, it is not followed.
func openat(dir int, name string, flags int) (int, error) {
	return again(func() (int, error) {
		return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}
