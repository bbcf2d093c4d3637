// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
)

// FS is a sysfs tree. The zero value is /sys.
type FS struct{ root string }

// New returns the tree under root, /sys if root is "".
func New(root string) FS { return FS{root} }

// Root is the directory that paths are relative to.
func (s FS) Root() string {
	if s.root == "" {
		return "/sys"
	}
	return s.root
}

// Path is the file's path outside the tree, for messages and os calls.
func (s FS) Path(elem ...string) string {
	return filepath.Join(append([]string{s.Root()}, elem...)...)
}

// textLimit is more than any attribute of text has.
const textLimit = 4 << 10

// text reads an attribute of text.
func (s FS) text(path string) ([]byte, error) {
	data, err := files.ReadFile(s.Path(path))
	if err == nil && len(data) > textLimit {
		return nil, fmt.Errorf("%s: %d bytes are no attribute of text: %w", s.Path(path), len(data), files.ErrTooLarge)
	}
	return data, err
}

// ReadString reads an attribute without its trailing white space.
func (s FS) ReadString(path string) (string, error) {
	data, err := s.text(path)
	if err != nil {
		return "", err
	}
	return string(bytes.TrimRight(data, " \t\n\x00")), nil
}

// number is the text of an attribute that has one number. The kernel ends it with a line feed: without one,
// the file was cut, and what is left of it is another number.
func (s FS) number(path string) (string, error) {
	data, err := s.text(path)
	if err != nil {
		return "", err
	}
	text, whole := bytes.CutSuffix(data, []byte("\n"))
	if !whole {
		return "", fmt.Errorf("%s: %q was cut: no line feed ends it", s.Path(path), text)
	}
	return strings.Trim(string(text), " \t\r\n\x00"), nil
}

// ReadInt reads a decimal, octal (0…) or hexadecimal (0x…) number.
func (s FS) ReadInt(path string) (int64, error) {
	text, err := s.number(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a number", s.Path(path), text)
	}
	return n, nil
}

// ReadUint reads a number that must fit the given count of bits.
func (s FS) ReadUint(path string, bits int) (uint64, error) {
	text, err := s.number(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a number of at most %d bits", s.Path(path), text, bits)
	}
	return n, nil
}

// Link returns the last element of what a symbolic link points to: for
// ".../device/driver" the driver's name.
func (s FS) Link(path string) (string, error) {
	target, err := files.Readlink(s.Path(path))
	if err != nil {
		return "", err
	}
	return filepath.Base(target), nil
}

// List returns a directory's entries in natural order: card2 before card10.
func (s FS) List(path string) ([]string, error) {
	entries, err := files.ReadDir(s.Path(path))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	sort.Slice(names, func(i, j int) bool { return naturalLess(names[i], names[j]) })
	return names, nil
}

// naturalLess orders by the number at the end where the text before is equal.
func naturalLess(a, b string) bool {
	at, an := splitNumber(a)
	bt, bn := splitNumber(b)
	if at != bt {
		return at < bt
	}
	if an != bn {
		return an < bn
	}
	return a < b
}

func splitNumber(s string) (text string, n uint64) {
	i := len(s)
	for i > 0 && s[i-1] >= '0' && s[i-1] <= '9' {
		i--
	}
	n, err := strconv.ParseUint(s[i:], 10, 64)
	if err != nil && i < len(s) {
		n = math.MaxUint64
	}
	return s[:i], n
}

// Exists reports whether the path is there, and can be looked at.
func (s FS) Exists(path string) bool { return s.Look(path) == nil }

// Look tells a path that is not there, fs.ErrNotExist, from one that cannot be
// looked at.
func (s FS) Look(path string) error {
	_, err := files.Lstat(s.Path(path))
	return err
}

// Resolve follows all symbolic links and returns the canonical path relative
// to the root. A path that leaves the tree is fs.ErrInvalid.
func (s FS) Resolve(path string) (string, error) {
	root, err := files.EvalSymlinks(s.Root())
	if err != nil {
		return "", err
	}
	real, err := files.EvalSymlinks(s.Path(path))
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(root, real)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", &fs.PathError{Op: "resolve", Path: s.Path(path), Err: errors.Join(fs.ErrInvalid, fmt.Errorf("%s is outside %s", real, root))}
	}
	return rel, nil
}
