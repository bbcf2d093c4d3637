// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// listed is a name in a directory of a copy, as fs.DirEntry.
type listed struct {
	dir  *file
	name string
	kind fs.FileMode
}

func (e *listed) Name() string      { return e.name }
func (e *listed) IsDir() bool       { return e.kind.IsDir() }
func (e *listed) Type() fs.FileMode { return e.kind }
func (e *listed) String() string    { return fs.FormatDirEntry(e) }

// Info looks at the file now.
func (e *listed) Info() (fs.FileInfo, error) {
	f := file{e.dir.copy, e.dir.in + "/" + e.name, e.dir.name + "/" + e.name}
	info, err := f.lstat()
	return info, wrapped("lstat", f.name, err)
}

// list is what the directory has, in the order of the names. To open it does not open what is no directory.
func (f file) list() ([]fs.DirEntry, error) {
	fd, err := f.copy.lookup(f.in, reading|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	all, err := f.names(fd)
	if err != nil {
		return nil, wrapped("readdirent", f.name, err)
	}
	f.copy.found(fd, len(all))
	slices.SortFunc(all, func(x, y listed) int { return strings.Compare(x.name, y.name) })
	out := make([]fs.DirEntry, len(all))
	for i := range all {
		out[i] = &all[i]
	}
	return out, nil
}

// found adds the files of an open directory to the budget, once.
func (c *confined) found(fd, files int) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return
	}
	if _, known := c.listed.LoadOrStore([2]uint64{uint64(st.Dev), st.Ino}, true); !known {
		c.files.Add(int64(files))
	}
}

// names are what an open directory has, in the kernel's order.
func (f file) names(fd int) (all []listed, err error) {
	var page [8 << 10]byte
	for {
		n, err := again(func() (int, error) { return unix.Getdents(fd, page[:]) })
		if err != nil || n == 0 {
			return all, err
		}
		for left := page[:n]; len(left) > 0; {
			var name string
			var mode uint32
			if name, mode, left, err = entry(left); err != nil {
				return nil, err
			}
			if name == "." || name == ".." {
				continue
			}
			if len(all) == namesLimit {
				return nil, fmt.Errorf("%w: more than %d names", ErrTooLarge, namesLimit)
			}
			if mode == 0 { // the file system does not say
				mode, err = modeAt(fd, name)
				if err == unix.ENOENT { // removed meanwhile
					continue
				}
				if err != nil {
					return nil, err
				}
			}
			all = append(all, listed{&f, name, kind(mode)})
		}
	}
}

// modeAt is the mode of a file of an open directory.
func modeAt(fd int, name string) (uint32, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st.Mode, err
}

// entry splits the first of the kernel's struct linux_dirent64 off: d_ino, d_off, then the length, the type and the
// name, which a zero ends. The type is the upper bits of the mode.
func entry(page []byte) (name string, mode uint32, left []byte, err error) {
	const lengthAt, typeAt, nameAt = 16, 18, 19
	if len(page) < nameAt {
		return "", 0, nil, unix.EIO
	}
	size := int(binary.NativeEndian.Uint16(page[lengthAt:]))
	if size < nameAt || size > len(page) {
		return "", 0, nil, unix.EIO
	}
	text, _, _ := bytes.Cut(page[nameAt:size], []byte{0})
	return string(text), uint32(page[typeAt]) << 12, page[size:], nil
}
