// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gpurdma/gpurdma/p2p/fleet"
	"github.com/gpurdma/gpurdma/p2p/result"
	"github.com/gpurdma/gpurdma/p2p/terminal"
)

// standard is the name of standard input and output.
const standard = "-"

// openInput opens a file, or the standard input for "-", to be read once.
func openInput(name string) (*os.File, error) {
	if name == standard {
		return os.Stdin, nil
	}
	return os.Open(name)
}

// openListed is openInput for a file that a command names, or that was found in a directory. A file of a directory must be
// regular: a FIFO would keep the command waiting for its writer.
func openListed(name string, named []string) (*os.File, error) {
	if !slices.ContainsFunc(named, func(arg string) bool { return filepath.Clean(arg) == name }) {
		if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is %s, and no regular file", terminal.Line(name), sortOf(st.Mode()))
		}
	}
	return openInput(name)
}

// badFile is the error of a file with other contents than its flag needs.
type badFile struct{ error }

func (b badFile) Unwrap() error { return b.error }

// readResult reads what check printed with --json.
func readResult(name string) (result.Run, error) {
	f, err := openInput(name)
	if err != nil {
		return result.Run{}, badFile{err}
	}
	defer f.Close()
	r, err := fleet.Read(f)
	if err != nil {
		return r, badFile{ofFile(name, err)}
	}
	return r, nil
}

// ofFile names the file of an error of package fleet. An error of the kernel has the name.
func ofFile(name string, err error) error {
	var kernel *fs.PathError
	if errors.As(err, &kernel) {
		return err
	}
	return fmt.Errorf("%s: %w", terminal.Line(name), err)
}

// openRegular is openInput, and fails for a directory.
func openRegular(name string) (*os.File, error) {
	f, err := openInput(name)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err == nil && st.IsDir() {
		_ = f.Close()
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EISDIR}
	}
	return f, nil
}
