// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/internal/files"
)

// stays fails if a name or a link of a tree leads out of it.
func stays(t *testing.T, tree *files.Tree) {
	t.Helper()
	n := 0
	for name, f := range tree.All() {
		n++
		if !filepath.IsLocal(name) || path.Clean(name) != name {
			t.Errorf("the name %q", name)
		}
		if f.Link != "" && !f.Unreadable(name) && (path.IsAbs(f.Link) || !filepath.IsLocal(path.Join(path.Dir(name), f.Link))) {
			t.Errorf("%q leads to %q", name, f.Link)
		}
	}
	if n != tree.Len() {
		t.Errorf("%d files, and the tree counts %d", n, tree.Len())
	}
	if err := Fits(tree); err != nil {
		t.Error(err)
	}
}

// No archive crashes the reader, or makes a name that leads out of the tree.
func FuzzRead(f *testing.F) {
	tree := files.NewTree()
	for name, file := range map[string]files.File{"sys": {Dir: true}, "sys/a": {Data: []byte("1")}, "sys/b": {Link: "a"}, "sys/c": {Link: "c"}} {
		if err := tree.Replace(name, file); err != nil {
			f.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := WriteFiles(&b, "1", tree.All()); err != nil {
		f.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b.Bytes()))
	if err != nil {
		f.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{nil, []byte("\x1f\x8b"), b.Bytes(), plain} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if tree, err := Read(bytes.NewReader(data)); err == nil {
			stays(t, tree)
		}
	})
}

// words are parts of names and of links' texts.
var words = []string{"a", "b", "..", ".", "", "c/d", "/", "../..", "a/b/c", "x\x00y", `\`, strings.Repeat("d/", 40), strings.Repeat("n", 300), "a/../../..", "/etc/passwd", "user:[1]"}

// members makes the files of an archive of bytes: what each is, its name, and what a link leads to.
func members(data []byte) []member {
	var out []member
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		b := int(data[0])
		data = data[1:]
		return b
	}
	name := func() string {
		var parts []string
		for range 1 + next()%3 {
			parts = append(parts, words[next()%len(words)])
		}
		return strings.Join(parts, "/")
	}
	for len(data) > 0 && len(out) < 64 {
		m := member{kind: []byte{tar.TypeReg, tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeFifo}[next()%8], name: name()}
		switch m.kind {
		case tar.TypeSymlink, tar.TypeLink:
			m.link = name()
		case tar.TypeReg:
			m.data = strings.Repeat("x", next())
			if next()%8 == 0 {
				m.data, m.pax = "", map[string]string{unreadableKey: "1"}
			}
		}
		out = append(out, m)
	}
	return out
}

// Whatever files an archive has, in whatever order: it is refused, or each of its files is in the tree, with its contents, and no
// more than these and the directories that lead to them.
func FuzzMembers(f *testing.F) {
	manifestOfThis, err := json.Marshal(manifest{schema, "unknown", patterns()})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "\x00\x00\x00\x05", "\x03\x01\x00\x01\x00\x02", "\x02\x00\x00\x03\x00\x01\x00\x00\x01\x00\x01", "\x04\x00\x01\x00\x07\x00\x00\x01", "\x00\x01\x00\x01\x05\x01\x00\x00\x00\x05\x01"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		put := func(m member) error {
			h := &tar.Header{Name: m.name, Linkname: m.link, Typeflag: m.kind, Size: int64(len(m.data)), Mode: 0o600, PAXRecords: m.pax}
			if err := w.WriteHeader(h); err != nil {
				return err
			}
			_, err := w.Write([]byte(m.data))
			return err
		}
		if err := put(member{name: manifestName, kind: tar.TypeReg, data: string(manifestOfThis)}); err != nil {
			t.Fatal(err)
		}
		want := map[string]member{}
		for _, m := range members(data) {
			if put(m) != nil {
				return // tar has no such name
			}
			if name := strings.TrimSuffix(m.name, "/"); name != "." {
				want[name] = m
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		tree, err := Read(&b)
		if err != nil {
			return
		}
		stays(t, tree)
		left := maps.Clone(want)
		for name, got := range tree.All() {
			m, there := want[name]
			delete(left, name)
			switch {
			case !there && got.Dir:
			case !there:
				t.Errorf("%q is in the tree, and was not in the archive", name)
			case got.Dir != (m.kind == tar.TypeDir), got.Unreadable(name) != (m.pax != nil) && m.kind == tar.TypeReg, m.kind == tar.TypeSymlink && got.Link != m.link, string(got.Data) != m.data:
				t.Errorf("%q: %+v, and the archive had %+v", name, got, m)
			}
		}
		if len(left) > 0 {
			t.Errorf("%v is not in the tree", left)
		}
	})
}
