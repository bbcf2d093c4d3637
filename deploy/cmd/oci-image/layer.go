// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// layer packs the files below a directory. It returns the archive as it is, and
// compressed. The archive keeps only names, contents, links and whether a file is a
// program, so that owners, times and the umask of the build do not change the image.
func layer(dir string, created time.Time) (plain, packed []byte, err error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	files := 0
	// WalkDir goes in lexical order.
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files++
		return put(tw, path, filepath.ToSlash(name), d, created)
	})
	if err == nil && files == 0 {
		err = fmt.Errorf("%s is empty", dir)
	}
	if err := errors.Join(err, tw.Close()); err != nil {
		return nil, nil, err
	}
	var z bytes.Buffer
	zw, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if err != nil {
		return nil, nil, err
	}
	if _, err := zw.Write(b.Bytes()); err != nil {
		return nil, nil, err
	}
	err = zw.Close()
	return b.Bytes(), z.Bytes(), err
}

// put adds one file.
func put(tw *tar.Writer, path, name string, d fs.DirEntry, created time.Time) error {
	h := &tar.Header{Name: name, ModTime: created, Format: tar.FormatUSTAR}
	switch d.Type() {
	case fs.ModeDir:
		h.Typeflag, h.Mode, h.Name = tar.TypeDir, 0o755, name+"/"
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		h.Typeflag, h.Mode, h.Linkname = tar.TypeSymlink, 0o777, target
	case 0:
		return putFile(tw, path, h)
	default:
		return fmt.Errorf("%s is neither file, directory nor link", path)
	}
	return tw.WriteHeader(h)
}

func putFile(tw *tar.Writer, path string, h *tar.Header) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Mode, h.Size = tar.TypeReg, 0o644, st.Size()
	if st.Mode()&0o100 != 0 {
		h.Mode = 0o755
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}
