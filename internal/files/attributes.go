// SPDX-License-Identifier: Apache-2.0

package files

import (
	"io/fs"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes are what stat(2) says of a file of a copy, as fs.FileInfo, under the name that was asked for.
type attributes struct {
	name string
	st   syscall.Stat_t
}

func (a *attributes) Name() string       { return a.name }
func (a *attributes) Size() int64        { return a.st.Size }
func (a *attributes) IsDir() bool        { return a.Mode().IsDir() }
func (a *attributes) ModTime() time.Time { return time.Unix(a.st.Mtim.Unix()) }
func (a *attributes) Sys() any           { return &a.st }

func (a *attributes) Mode() fs.FileMode {
	mode := kind(a.st.Mode) | fs.FileMode(a.st.Mode&0o777)
	if a.st.Mode&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if a.st.Mode&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if a.st.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// kind is the kernel's kind of a file as package fs has it.
func kind(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		return fs.ModeDevice
	}
	return fs.ModeIrregular
}
