// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// standard is the name of standard input and output.
const standard = "-"

// openInput opens a file that is read once, from its beginning.
func openInput(name string) (*os.File, error) {
	if name == standard {
		return os.Stdin, nil
	}
	return os.Open(name)
}

// openRegular is openInput for what is no directory.
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
