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
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	entryLimit = 500_000
	totalLimit = 512 << 20
	nameLimit  = 1024
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

var errLarge = fmt.Errorf("%w: it is larger than %d MiB", errSnapshot, totalLimit>>20)

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

// unpack writes the files of a snapshot below an empty directory. It refuses a name or a link that leads
// out of the directory.
func unpack(r io.Reader, dir string) error {
	buffered := bufio.NewReader(r)
	var plain io.Reader = buffered
	magic, err := buffered.Peek(2)
	if len(magic) == 0 && errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it is empty", errSnapshot)
	}
	begun := bytes.Equal(magic, []byte{0x1f, 0x8b})
	if begun {
		compressed, err := gzip.NewReader(buffered)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return refused(err, begun, "its head")
		}
		plain = compressed
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{root: root, kinds: map[string]byte{}}
	limited := &io.LimitedReader{R: plain, N: totalLimit}
	archive := tar.NewReader(limited)
	for n := 0; ; n++ {
		h, err := archive.Next()
		switch {
		case limited.N == 0:
			return errLarge
		case errors.Is(err, io.EOF) && n > 0:
			// gzip's checksum is behind the last file.
			if _, err := io.Copy(io.Discard, limited); err != nil {
				return refused(err, true, "its end")
			}
			if limited.N == 0 {
				return errLarge
			}
			return nil
		case err != nil:
			return refused(err, begun || n > 0, fmt.Sprintf("entry %d", n))
		case n == 0:
			err = checkManifest(h, archive)
		case n > entryLimit:
			err = errors.New("too many files")
		default:
			err = u.entry(h, archive)
		}
		switch {
		case err != nil && limited.N == 0:
			return errLarge
		case err != nil:
			return refused(err, true, strconv.Quote(h.Name))
		}
	}
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

type unpacker struct {
	root  *os.Root
	kinds map[string]byte // the entries that are written already, by type flag
	total int64
}

// entry writes one file. It refuses a name below a link and a name that exists already: the text of a
// link alone then says where the link leads.
func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if !filepath.IsLocal(name) || path.Clean(name) != name || len(name) > nameLimit || strings.ContainsAny(name, "\\\x00") {
		return errors.New("a name that leads elsewhere")
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if kind, ok := u.kinds[dir]; ok && kind != tar.TypeDir {
			return fmt.Errorf("%s is no directory", dir)
		}
		u.kinds[dir] = tar.TypeDir
	}
	if kind, ok := u.kinds[name]; ok {
		if kind == tar.TypeDir && h.Typeflag == tar.TypeDir {
			return nil
		}
		return errors.New("it is there twice")
	}
	u.kinds[name] = h.Typeflag
	if err := u.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.root.MkdirAll(name, 0o700)
	case tar.TypeSymlink:
		if !inside(path.Dir(name), h.Linkname) {
			return fmt.Errorf("a link to %q, which leads elsewhere", h.Linkname)
		}
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		if h.PAXRecords[unreadableKey] != "" {
			// A link to itself: it is there, and cannot be read.
			return u.root.Symlink(path.Base(name), name)
		}
		return u.file(name, h.Size, r)
	}
	return fmt.Errorf("a file of type %q", h.Typeflag)
}

func (u *unpacker) file(name string, size int64, r io.Reader) error {
	if u.total += size; size > fileLimit || u.total > totalLimit {
		return errors.New("too large")
	}
	f, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
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

// open unpacks a snapshot, or what rdma_topo dumped.
func open(r io.Reader, dir string) error {
	buffered := bufio.NewReader(r)
	if !isDump(buffered) {
		return unpack(buffered, dir)
	}
	entries, err := fromDump(buffered)
	if err != nil {
		return err
	}
	return writeTo(dir, entries)
}

// writeTo writes entries below an empty directory, as those of a snapshot.
func writeTo(dir string, entries map[string]entry) error {
	var b bytes.Buffer
	if err := pack(&b, entries); err != nil {
		return err
	}
	return unpack(&b, dir)
}

// unpacked opens a snapshot. It returns the directory with the files, and a function that removes it.
func unpacked(name string) (dir string, done func(), err error) {
	f, err := openRegular(name)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	return below(func(dir string) error {
		if err := open(f, dir); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// below makes a directory for the files of a machine, and has them written there.
func below(write func(dir string) error) (dir string, done func(), err error) {
	if dir, err = os.MkdirTemp("", "p2pcheck-"); err != nil {
		return "", nil, err
	}
	done = func() { _ = os.RemoveAll(dir) }
	if err := write(dir); err != nil {
		done()
		return "", nil, err
	}
	return dir, done, nil
}
