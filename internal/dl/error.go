// SPDX-License-Identifier: Apache-2.0

package dl

import (
	"errors"
	"io/fs"
	"strings"
)

// ErrNoSymbol says that a library has no such symbol, or not in that version.
var ErrNoSymbol = errors.New("no such symbol")

// Error is why a library was not loaded. Where there is no such file it is
// [fs.ErrNotExist]; a file that is there and does not load, for want of another
// library or of memory, is not.
type Error struct {
	Name    string // the library, as Open was called with it
	Reason  string // the dynamic linker's words, without the name before them
	missing bool
}

// explain reads the dynamic linker's words for a name: of glibc, "NAME: WHAT: WHY",
// and of musl, "Error loading shared library NAME: WHY". Of a library that misses
// another one they begin with the other's name.
func explain(name, text string) *Error {
	reason, own := strings.CutPrefix(strings.TrimPrefix(text, "Error loading shared library "), name+": ")
	if !own {
		return &Error{Name: name, Reason: text}
	}
	missing := strings.HasSuffix(reason, "No such file or directory") // musl adds "(needed by …)"
	return &Error{Name: name, Reason: reason, missing: missing}
}

// Error says what was to be loaded, and why it was not.
func (e *Error) Error() string { return "load " + e.Name + ": " + e.Reason }

// Is answers for fs.ErrNotExist.
func (e *Error) Is(target error) bool { return target == fs.ErrNotExist && e.missing }

// Remedy is what to change where the file is there.
func (e *Error) Remedy() string {
	if strings.Contains(e.Reason, "map segment") || strings.Contains(e.Reason, "llocate memory") {
		return "raise what this process may have of address space (ulimit -v), and look whether the file system is mounted noexec"
	}
	if strings.Contains(e.Reason, "Too many open files") { // EMFILE
		return "raise RLIMIT_NOFILE (ulimit -n)"
	}
	return "check with ldd what it misses, and that it is of this machine's architecture"
}
