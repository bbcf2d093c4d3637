// SPDX-License-Identifier: Apache-2.0

package wholefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File is written beside the place that it is to have. It ends with Keep or Drop.
type File struct {
	name string
	f    *os.File
}

// Create begins a file for a place. Only this user may read it until Keep. Until then it has a name that begins with a
// dot and the name of the place.
func Create(name string) (*File, error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".")
	if err != nil {
		return nil, err
	}
	return &File{name, f}, nil
}

// Write implements io.Writer.
func (w *File) Write(p []byte) (int, error) { return w.f.Write(p) }

// Keep puts the file into its place, with this mode. If it fails, the place has what it had.
func (w *File) Keep(mode fs.FileMode) error {
	return w.place(errors.Join(w.f.Chmod(mode), w.f.Close()))
}

// place renames the file, or removes it after an error.
func (w *File) place(err error) error {
	if err == nil {
		// A device, a link or a directory that has appeared there must not be replaced.
		if st, lerr := os.Lstat(w.name); lerr == nil && !st.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file any more", w.name)
		} else {
			err = os.Rename(w.f.Name(), w.name)
		}
	}
	if err != nil {
		return errors.Join(err, os.Remove(w.f.Name()))
	}
	return nil
}

// Drop removes what was written. After Keep it does nothing.
func (w *File) Drop() error {
	if err := w.f.Close(); errors.Is(err, os.ErrClosed) {
		return nil
	}
	return os.Remove(w.f.Name())
}

// Write replaces a file by what a function writes.
func Write(name string, mode fs.FileMode, write func(io.Writer) error) error {
	w, err := Create(name)
	if err != nil {
		return err
	}
	if err := write(w); err != nil {
		return errors.Join(err, w.Drop())
	}
	return w.Keep(mode)
}

// Replace replaces a file by text, and waits until that is on the disk: after a power failure the place has the old
// file or the new one.
func Replace(name string, text []byte, mode fs.FileMode) error {
	w, err := Create(name)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	if err := w.place(errors.Join(err, w.f.Chmod(mode), w.f.Sync(), w.f.Close())); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return nil // the file is there
	}
	defer dir.Close()
	return dir.Sync()
}
