// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// snapshot is the file that p2pcheck wrote.
type snapshot struct {
	File       string   `json:"file"`
	Files      int      `json:"files"`
	Unreadable []string `json:"unreadable_files"`
	Error      string   `json:"error"` // why there is none; "" if there is one
}

const snapshotFile = "snapshot.tar.gz"

// takeSnapshot lets p2pcheck write a redacted snapshot.
func (h *hardware) takeSnapshot(ctx context.Context) (snapshot, error) {
	out := snapshot{File: snapshotFile, Unreadable: []string{}}
	text, err := run(ctx, snapshotLimit, program{path: h.program("p2pcheck"), args: []string{"snapshot", "--json", filepath.Join(h.out, snapshotFile)}})
	if err != nil {
		return out, err
	}
	var d struct {
		Result struct {
			Files  int      `json:"files"`
			Unread []string `json:"unreadable_files"`
		} `json:"result"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return out, fmt.Errorf("p2pcheck snapshot printed something else: %w", err)
	}
	out.Files = d.Result.Files
	out.Unreadable = append(out.Unreadable, d.Result.Unread...)
	return out, nil
}

// unreadableKey marks a file that p2pcheck could not read.
const unreadableKey = "P2PCHECK.unreadable"

// unpack writes the files of a snapshot below an empty directory, as p2pcheck has them: one that
// could not be read is a link to itself.
func unpack(archive, dir string) (err error) {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for t := tar.NewReader(plain); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = put(root, h, t)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
	}
}

func put(root *os.Root, h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	switch {
	case h.PAXRecords[unreadableKey] != "":
		return root.Symlink(path.Base(name), name)
	case h.Typeflag == tar.TypeDir:
		return root.MkdirAll(name, 0o700)
	case h.Typeflag == tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
