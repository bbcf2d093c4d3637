// SPDX-License-Identifier: Apache-2.0

package files

import (
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// confined is a directory that has a copy of another machine's files.
type confined struct {
	*directory

	// mu is held for reading while the descriptors are in use.
	mu       sync.RWMutex
	released bool
	fd       int    // the directory
	self     int    // the directory of this process's descriptors in a procfs; -1 without one
	path     string // the directory's name by that procfs
	walks    bool   // the kernel has no openat2(2), or does not permit it

	budget
	listed sync.Map // the directories whose files the budget has, by their inodes
}

// Confine makes the functions of this package treat a directory as the root of a machine, until release is called.
// They find the files at or below it as a process does that is chroot-ed into it: links, absolute ones too, and ".."
// lead nowhere else. Opening a pipe can block, and opening a device can have an effect, so these are [ErrIrregular];
// the exception is the kernel's log at dev/kmsg, which in a container is the host's. Each file is limited in size
// ([ErrTooLarge]). A file system that does not answer, as that of a server that is gone, can still block the reader.
//
// A file is in the copy if its name begins with dir, as dir was written or as filepath.Clean writes it. If other
// names, by links, say, lead to the same directory, the files that have these names are this machine's.
//
// It is for one look at the machine: after many more accesses than that needs, all answers are [ErrRepeats].
//
// Release waits for calls that use the copy's descriptors. Afterwards the names are this machine's, and a [Dir] that
// was opened in the copy reads no more files: [fs.ErrClosed].
func Confine(dir string) (release func(), err error) {
	c, err := newConfined(dir)
	if err != nil {
		return nil, err
	}
	return c.enter(dir), nil
}

func newConfined(dir string) (*confined, error) {
	if dir == "" {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: unix.ENOENT}
	}
	c := &confined{self: -1}
	c.directory = newDirectory(dir, c)
	var err error
	c.fd, err = again(func() (int, error) {
		return unix.Open(c.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	if probe, err := c.openat2("/", unix.O_PATH); err == nil {
		_ = unix.Close(probe)
	} else {
		c.walks = true
	}
	c.openSelf()
	return c, nil
}

// openSelf opens /proc/self/fd, if it is what it should be.
func (c *confined) openSelf() {
	self, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(self, &st); err != nil || st.Type != unix.PROC_SUPER_MAGIC {
		_ = unix.Close(self)
		return
	}
	if c.path, err = readlinkat(self, strconv.Itoa(c.fd)); err != nil {
		_ = unix.Close(self)
		return
	}
	c.self = self
}

// enter lets the copy answer for its directory. leave ends that, and closes its descriptors.
func (c *confined) enter(dir string) (leave func()) {
	release := Serve(dir, c)
	return sync.OnceFunc(func() {
		release()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.released = true
		_ = unix.Close(c.fd)
		if c.self >= 0 {
			_ = unix.Close(c.self)
		}
	})
}

// held calls f with the descriptors open.
func (c *confined) held(f func() (int, error)) (int, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.released {
		return -1, fs.ErrClosed
	}
	return f()
}

// lookup opens a file by its name in the copy. The last link is followed unless flags have O_NOFOLLOW. Flags
// without O_PATH and O_DIRECTORY are for what is known to be no device.
func (c *confined) lookup(in string, flags int) (int, error) {
	return c.held(func() (int, error) {
		if !c.walks {
			if fd, err := c.openat2(in, flags); err != unix.EAGAIN {
				return fd, err
			}
		}
		fd, _, err := c.walk(in, flags)
		return fd, err
	})
}

// openat2 lets the kernel resolve the name. The kernel returns EAGAIN if a rename or a mount happens during the
// lookup of "..".
func (c *confined) openat2(in string, flags int) (fd int, err error) {
	const tries = 64
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for range tries {
		fd, err = again(func() (int, error) { return unix.Openat2(c.fd, in, &how) })
		if err != unix.EAGAIN {
			break
		}
	}
	return fd, err
}

// reopen opens for reading what a descriptor of O_PATH has.
func (c *confined) reopen(fd int) (int, error) {
	return c.held(func() (int, error) {
		return again(func() (int, error) { return unix.Openat(c.self, strconv.Itoa(fd), reading, 0) })
	})
}

// reading are the flags to read a regular file by. Reading a file of procfs can block.
const reading = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

// canonical is a file's name in the copy without links.
func (c *confined) canonical(in string) (real string, err error) {
	_, err = c.held(func() (fd int, err error) {
		if !c.walks && c.self >= 0 {
			if real, err = c.namedByProc(in); err != unix.EAGAIN {
				return 0, err
			}
		}
		fd, real, err = c.walk(in, unix.O_PATH)
		if err == nil {
			_ = unix.Close(fd)
		}
		return 0, err
	})
	return real, err
}

// namedByProc is the name that a procfs has of an open file. Its error is EAGAIN if that name does not show where
// the file is in the copy: something was removed or moved.
func (c *confined) namedByProc(in string) (string, error) {
	fd, err := c.openat2(in, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	name, err := readlinkat(c.self, strconv.Itoa(fd))
	if err != nil || strings.HasSuffix(name, " (deleted)") {
		return "", unix.EAGAIN
	}
	real, ok := strings.CutPrefix(name, strings.TrimSuffix(c.path, "/"))
	switch {
	case !ok:
		return "", unix.EAGAIN
	case real == "":
		return "/", nil
	case real[0] != '/':
		return "", unix.EAGAIN
	}
	return real, nil
}

func readlinkat(fd int, name string) (string, error) {
	var text [unix.PathMax]byte // no link is longer
	n, err := again(func() (int, error) { return unix.Readlinkat(fd, name, text[:]) })
	if err != nil {
		return "", err
	}
	return string(text[:n]), nil
}
