// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
)

// Read reads a snapshot into memory. It refuses names and links that lead out of the snapshot. If r is no snapshot, or is
// hostile, damaged or cut off, errors.Is finds [Err] in the error.
func Read(r io.Reader) (*files.Tree, error) {
	buffered := bufio.NewReader(r)
	var plain io.Reader = buffered
	magic, err := buffered.Peek(2)
	if len(magic) == 0 && errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: it is empty", Err)
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
			err = add(tree, h, archive)
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

// add keeps one file. It refuses a name below a link and a name that exists already: the text of a
// link alone then says where the link leads.
func add(t *files.Tree, h *tar.Header, r io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	switch {
	case !filepath.IsLocal(name) || path.Clean(name) != name || len(name) > NameLimit || strings.ContainsAny(name, "\\\x00"):
		return errors.New("a name that leads elsewhere")
	case name == "." && h.Typeflag != tar.TypeDir:
		return errors.New("the root is no directory")
	case strings.Count(name, "/") >= depthLimit:
		return fmt.Errorf("it is deeper than %d directories", depthLimit)
	}
	if err := keep(t, name, h, r); err != nil {
		return err
	}
	return Fits(t)
}

func keep(t *files.Tree, name string, h *tar.Header, r io.Reader) error {
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
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) || len(target) > NameLimit {
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
