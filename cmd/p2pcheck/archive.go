// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpurdma/gpurdma/internal/files"
)

// manifestName is the first file of a snapshot.
const (
	manifestName   = "p2pcheck-snapshot.json"
	snapshotSchema = "p2pcheck-snapshot/v1"
	// unreadableKey marks a file that could not be read.
	unreadableKey = "P2PCHECK.unreadable"
)

// manifest identifies a snapshot.
type manifest struct {
	Schema   string   `json:"schema"`
	Version  string   `json:"version"`
	LookedAt []string `json:"looked_at"` // patterns: a file that one matches and the archive lacks did not exist
}

// patterns match all files that this version reads.
func patterns() []string {
	return append(append(slices.Clone(lookedAt), ofAnyFunction...), ofEndpoints...)
}

func isNoDirectory(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// pack writes a snapshot.
func pack(w io.Writer, entries map[string]entry) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	head, err := json.Marshal(manifest{snapshotSchema, version, patterns()})
	if err != nil {
		return err
	}
	put := func(h tar.Header, data []byte) error {
		h.Size, h.Mode, h.Format = int64(len(data)), 0o600, tar.FormatPAX
		if h.Typeflag == tar.TypeDir {
			h.Mode = 0o700 // lets a user unpack it by tar
		}
		if err := archive.WriteHeader(&h); err != nil {
			return err
		}
		_, err := archive.Write(data)
		return err
	}
	if err := put(tar.Header{Name: manifestName, Typeflag: tar.TypeReg}, head); err != nil {
		return err
	}
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		e := entries[name]
		h := tar.Header{Name: name, Typeflag: tar.TypeReg}
		switch {
		case e.unreadable:
			h.PAXRecords = map[string]string{unreadableKey: "1"}
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		case e.dir:
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		}
		if err := put(h, e.data); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

// Limits of a snapshot: more than any machine has.
const (
	entryLimit  = 1_000_000 // files, links and directories, those that lead to others included
	totalLimit  = 192 << 20 // memory that they take
	streamLimit = 2 << 30   // of the archive when it is unpacked: tar needs a KiB for each small file
	nameLimit   = 1024
	depthLimit  = 32
	endLimit    = 1 << 20 // bytes behind the last file
)

// noSnapshot says why a file is not opened as a snapshot. Each is errSnapshot as well.
type noSnapshot string

func (n noSnapshot) Error() string { return string(n) }

// Is is for errors.Is.
func (noSnapshot) Is(target error) bool { return target == error(errSnapshot) }

const (
	// errSnapshot is the error of a file that is no snapshot, or a hostile one.
	errSnapshot = noSnapshot("not an archive that `" + program + " snapshot` wrote")
	errCut      = noSnapshot("cut off: its end is missing")
	errDamaged  = noSnapshot("damaged")
)

var (
	errLarge = fmt.Errorf("%w: its files are larger than %d MiB", errSnapshot, totalLimit>>20)
	errMany  = fmt.Errorf("%w: it has more than %d files and directories", errSnapshot, entryLimit)
	errEnd   = fmt.Errorf("%w: there is more behind its end", errSnapshot)
)

// refused distinguishes a snapshot that was cut off or damaged from a file that never was one: begun
// says whether the file looked like a snapshot so far.
func refused(err error, begun bool, where string) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, errSnapshot):
		return err
	case begun && errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	case errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) || begun && errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("%w: %s: %w", errDamaged, where, err)
	}
	return fmt.Errorf("%w: %s: %w", errSnapshot, where, err)
}

// unpack reads the files of a snapshot into memory. It refuses a name or a link that leads out of the snapshot.
func unpack(r io.Reader) (*files.Tree, error) {
	buffered := bufio.NewReader(r)
	var plain io.Reader = buffered
	magic, err := buffered.Peek(2)
	if len(magic) == 0 && errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: it is empty", errSnapshot)
	}
	begun := bytes.Equal(magic, []byte{0x1f, 0x8b})
	if begun {
		compressed, err := gzip.NewReader(buffered)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, refused(err, begun, "its head")
		}
		plain = compressed
	}
	tree := files.NewTree()
	limited := &io.LimitedReader{R: plain, N: streamLimit}
	archive := tar.NewReader(limited)
	for n := 0; ; n++ {
		h, err := archive.Next()
		switch {
		case limited.N == 0:
			return nil, errLarge
		case errors.Is(err, io.EOF) && n > 0:
			return tree, ended(limited)
		case err != nil:
			return nil, refused(err, begun || n > 0, fmt.Sprintf("entry %d", n))
		case n == 0:
			err = checkManifest(h, archive)
		default:
			err = unpackEntry(tree, h, archive)
		}
		switch {
		case err != nil && limited.N == 0:
			return nil, errLarge
		case err != nil:
			return nil, refused(err, true, strconv.Quote(h.Name))
		}
	}
}

// ended reads what is behind the last file: gzip's checksum.
func ended(r io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, endLimit+1))
	switch {
	case err != nil:
		return refused(err, true, "its end")
	case n > endLimit:
		return errEnd
	}
	return nil
}

func checkManifest(h *tar.Header, r io.Reader) error {
	if h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > fileLimit {
		return errors.New("it does not begin with " + manifestName)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if m.Schema != snapshotSchema {
		return fmt.Errorf("schema %q, and this program reads %s", m.Schema, snapshotSchema)
	}
	for _, pattern := range patterns() {
		if !slices.Contains(m.LookedAt, pattern) {
			by := "an older " + program
			if m.Version != "unknown" {
				by += " (" + m.Version + ")"
			}
			return noSnapshot(fmt.Sprintf("taken by %s, which did not look at %s: take a new one", by, pattern))
		}
	}
	return nil
}

// unpackEntry keeps one file. It refuses a name below a link and a name that exists already: the text of a
// link alone then says where the link leads.
func unpackEntry(t *files.Tree, h *tar.Header, r io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	switch {
	case !filepath.IsLocal(name) || path.Clean(name) != name || len(name) > nameLimit || strings.ContainsAny(name, "\\\x00"):
		return errors.New("a name that leads elsewhere")
	case strings.Count(name, "/") >= depthLimit:
		return fmt.Errorf("it is deeper than %d directories", depthLimit)
	}
	if err := keepEntry(t, name, h, r); err != nil {
		return err
	}
	switch {
	case t.Len() > entryLimit:
		return errMany
	case t.Bytes() > totalLimit:
		return errLarge
	}
	return nil
}

func keepEntry(t *files.Tree, name string, h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return t.AddDir(name)
	case tar.TypeSymlink:
		if !inside(path.Dir(name), h.Linkname) {
			return fmt.Errorf("a link to %q, which leads elsewhere", h.Linkname)
		}
		return t.AddLink(name, h.Linkname)
	case tar.TypeReg:
		if h.PAXRecords[unreadableKey] != "" {
			return t.AddUnreadable(name)
		}
		if h.Size > fileLimit || t.Bytes()+h.Size > totalLimit {
			return errLarge
		}
		data := make([]byte, h.Size)
		if _, err := io.ReadFull(r, data); err != nil {
			return err
		}
		return t.AddFile(name, data)
	}
	return fmt.Errorf("a file of type %q", h.Typeflag)
}

// inside reports a link's text that leads up first, then down, and stays below the root.
func inside(dir, target string) bool {
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) || len(target) > nameLimit {
		return false
	}
	down := false
	for _, part := range strings.Split(target, "/") {
		if part == ".." && down {
			return false
		}
		down = down || part != ".."
	}
	return filepath.IsLocal(path.Join(dir, target))
}

// open reads a snapshot, or what rdma_topo dumped.
func open(r io.Reader) (*files.Tree, error) {
	buffered := bufio.NewReader(r)
	if !isDump(buffered) {
		return unpack(buffered)
	}
	entries, err := fromDump(buffered)
	if err != nil {
		return nil, err
	}
	return treeOf(entries)
}

// treeOf has entries in memory, as those of a snapshot.
func treeOf(entries map[string]entry) (*files.Tree, error) {
	t := files.NewTree()
	for name, e := range entries {
		var err error
		switch {
		case e.unreadable:
			err = t.AddUnreadable(name)
		case e.link != "":
			err = t.AddLink(name, e.link)
		case e.dir:
			err = t.AddDir(name)
		default:
			err = t.AddFile(name, e.data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return t, nil
}

// unpacked opens a snapshot. It returns the directory with the files, and a function that forgets them.
func unpacked(name string) (dir string, done func(), err error) {
	f, err := openRegular(name)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	t, err := open(f)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", name, err)
	}
	dir, done = files.Mount(t)
	return dir, done, nil
}
