// SPDX-License-Identifier: Apache-2.0

package files

import "golang.org/x/sys/unix"

// Dir is a directory that is open: the way to its files need not be looked up again.
type Dir struct {
	fd   int
	name string
	file file // the directory in a copy
}

// Close closes the directory.
func (d Dir) Close() error {
	if d.fd == unix.AT_FDCWD {
		return nil
	}
	return unix.Close(d.fd)
}

// ReadFile reads a file of the directory.
func (d Dir) ReadFile(name string) ([]byte, error) {
	path := d.name + "/" + name
	if d.file.copy != nil {
		data, err := d.readCopy(name, path)
		return data, wrapped("open", path, err)
	}
	if s := systemOf(path); s != Machine {
		return s.ReadFile(path)
	}
	return readAt(d.fd, name, path)
}
