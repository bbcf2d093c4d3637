// SPDX-License-Identifier: Apache-2.0

package files

import (
	"io"
	"io/fs"
)

// System answers for files by their whole names: for those of this machine ([Machine]), of a copy ([Confine]), of a
// [Tree] ([Mount]), or of a directory that [Serve] gives to another System.
type System interface {
	// Open opens a file for reading.
	Open(name string) (io.ReadCloser, error)
	ReadFile(name string) ([]byte, error)
	OpenDir(name string) (Dir, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	Readlink(name string) (string, error)
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	// EvalSymlinks is the file's name without links.
	EvalSymlinks(name string) (string, error)
}

// Serve lets a System answer for the files at or below a directory, until release is called.
func Serve(dir string, s System) (release func()) {
	d := newDirectory(dir, s)
	change(func(all *places) { all.served = append(all.served, d) })
	return func() { change(func(all *places) { all.served = without(all.served, d) }) }
}

// Open is os.Open, for reading. A file of a copy that has more than such files have ends with an error that is [ErrTooLarge].
func Open(name string) (io.ReadCloser, error) { return systemOf(name).Open(name) }

// ReadFile is os.ReadFile with half of its system calls: attributes are small and
// many, and none is ever waited for.
func ReadFile(name string) ([]byte, error) { return systemOf(name).ReadFile(name) }

// OpenDir opens a directory.
func OpenDir(name string) (Dir, error) { return systemOf(name).OpenDir(name) }

// ReadDir is os.ReadDir.
func ReadDir(name string) ([]fs.DirEntry, error) { return systemOf(name).ReadDir(name) }

// Readlink is os.Readlink.
func Readlink(name string) (string, error) { return systemOf(name).Readlink(name) }

// Stat is os.Stat.
func Stat(name string) (fs.FileInfo, error) { return systemOf(name).Stat(name) }

// Lstat is os.Lstat.
func Lstat(name string) (fs.FileInfo, error) { return systemOf(name).Lstat(name) }

// EvalSymlinks is filepath.EvalSymlinks.
func EvalSymlinks(name string) (string, error) { return systemOf(name).EvalSymlinks(name) }

// Elsewhere reports a file that this machine does not answer for. It is not to be opened by other means than this
// package's.
func Elsewhere(name string) bool { return systemOf(name) != Machine }

// InTree reports a file of a tree.
func InTree(name string) bool {
	_, ok := systemOf(name).(*mounted)
	return ok
}
