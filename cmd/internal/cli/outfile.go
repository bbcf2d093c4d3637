// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/failure"
	"github.com/gpurdma/gpurdma/internal/errno"
	"github.com/gpurdma/gpurdma/internal/wholefile"
)

// OutFile is a command's output at the path that the user gave. A regular file is
// replaced, whole or not at all: a program that reads it meanwhile reads the old one.
// Anything else (a device, a FIFO) is written through, and stays.
type OutFile struct {
	whole   *wholefile.File // nil if it is written through
	target  string          // that it replaces
	through *os.File        // nil if a file is replaced
}

// Create opens the output before there is anything to write, so that a path that
// cannot be written fails at once. The caller ends it with Keep or Drop.
func Create(path string) (*OutFile, error) {
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOCTTY, 0)
		if err != nil {
			return nil, err
		}
		return &OutFile{through: f}, nil
	}
	target, err := resolve(path)
	if err != nil {
		return nil, err
	}
	f, err := wholefile.Create(target)
	if err != nil {
		return nil, err
	}
	return &OutFile{whole: f, target: target}, nil
}

// linkLimit is how many links the kernel follows.
const linkLimit = 40

// resolve follows the links of a name to a regular file, or to a name that
// nothing has yet.
func resolve(path string) (string, error) {
	at := path
	for range linkLimit {
		dir, base := filepath.Split(at)
		if dir == "" {
			dir = "."
		}
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return "", err
		}
		name := filepath.Join(dir, base)
		switch st, err := os.Lstat(name); {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil
		case err != nil:
			return "", err
		case st.Mode().IsRegular():
			return name, nil
		case st.Mode()&fs.ModeSymlink == 0:
			return "", fmt.Errorf("%s is no regular file", name)
		}
		if at, err = os.Readlink(name); err != nil {
			return "", err
		}
		if !filepath.IsAbs(at) {
			at = dir + "/" + at // not cleaned: ".." of a link's target is not ".." of the link
		}
	}
	return "", &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
}

// Write is for io.Writer.
func (o *OutFile) Write(p []byte) (int, error) {
	if o.whole != nil {
		return o.whole.Write(p)
	}
	return o.through.Write(p)
}

// Keep puts what was written in the place of the old file, and closes it. The file has at most this mode: a new one
// without what the umask takes away, and one that is replaced with no more than it had.
func (o *OutFile) Keep(mode fs.FileMode) error {
	if o.whole == nil {
		return o.through.Close()
	}
	if st, err := os.Stat(o.target); err == nil {
		mode &= st.Mode().Perm()
	} else {
		mode &^= umask()
	}
	return o.whole.Keep(mode)
}

// umask is that of this process: umask(2) would change it for a moment, for all threads.
func umask() fs.FileMode {
	text, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "Umask:"); ok {
				if n, err := strconv.ParseUint(strings.TrimSpace(value), 8, 9); err == nil {
					return fs.FileMode(n)
				}
			}
		}
	}
	return 0o077 // not known: what others may read is a decision of the user
}

// Unwritten is the error of an output that could not be written to path. Its remedy says
// which value flag needs. The output's name, what, is in words: "the report".
func Unwritten(what, flag, path string, err error) error {
	e := &failure.Error{Op: "write " + what, Device: path, Err: err}
	if n, ok := errno.Of(err); ok {
		e.Err = n
	}
	// Name the file that failed if it is not the user's, such as a directory above it.
	// The user does not know the temporary file.
	var at *fs.PathError
	if errors.As(err, &at) && at.Path != path && !strings.HasPrefix(filepath.Base(at.Path), "."+filepath.Base(path)+".") {
		e.Detail = fmt.Sprintf("%s of %s", at.Op, at.Path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Remedy = "make its directory, or give " + flag + " a path in one that exists"
		if _, err := os.Stat(filepath.Dir(path)); err == nil {
			e.Remedy = "give " + flag + " a path in a directory in which files can be made"
		}
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		e.Remedy = "give " + flag + " the path of a file in a directory"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		e.Remedy = "give " + flag + " a path in a directory that this user may write to"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		e.Remedy = "free space there, or give " + flag + " a path on another file system"
	case errors.Is(err, unix.EMFILE):
		e.Remedy = "raise RLIMIT_NOFILE (ulimit -n)"
	}
	return e
}

// Drop removes what was written, and leaves the old file as it was. After Keep it does
// nothing.
func (o *OutFile) Drop() error {
	if o.whole != nil {
		return o.whole.Drop()
	}
	if err := o.through.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
