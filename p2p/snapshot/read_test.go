// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

// member is a file of an archive.
type member struct {
	name, link string
	kind       byte
	data       string
	pax        map[string]string
}

func archived(t *testing.T, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Linkname: m.link, Typeflag: m.kind, Size: int64(len(m.data)), Mode: 0o600, PAXRecords: m.pax}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func goodManifest(t *testing.T) member {
	t.Helper()
	text, err := json.Marshal(manifest{schema, "1", patterns()})
	if err != nil {
		t.Fatal(err)
	}
	return member{name: manifestName, kind: tar.TypeReg, data: string(text)}
}

func TestReadRefuses(t *testing.T) {
	good := goodManifest(t)
	file := func(name string) member { return member{name: name, kind: tar.TypeReg, data: "x"} }
	link := func(name, to string) member { return member{name: name, kind: tar.TypeSymlink, link: to} }
	old, err := json.Marshal(manifest{schema, "0.1", patterns()[1:]})
	if err != nil {
		t.Fatal(err)
	}
	for what, members := range map[string][]member{
		"nothing":             {},
		"no manifest":         {file("sys/x")},
		"another manifest":    {{name: manifestName, kind: tar.TypeReg, data: `{"schema":"other/v1"}`}},
		"no JSON":             {{name: manifestName, kind: tar.TypeReg, data: "{"}},
		"an older one":        {{name: manifestName, kind: tar.TypeReg, data: string(old)}},
		"up":                  {good, file("../x")},
		"up in the middle":    {good, file("sys/../../x")},
		"not clean":           {good, file("sys//x")},
		"absolute":            {good, file("/etc/x")},
		"a link up":           {good, link("sys/x", "../../etc")},
		"an absolute link":    {good, link("sys/x", "/etc/passwd")},
		"up behind a name":    {good, link("a/b/c/x", "../../.."), link("y", "a/b/c/x/../..")},
		"below a link":        {good, link("a/b/c/x", "../../.."), link("a/b/c/x/y", "../../..")},
		"below a file":        {good, file("a"), file("a/b")},
		"a root that is none": {good, file(".")},
		"twice":               {good, file("a"), file("a")},
		"a link for a dir":    {good, file("a/b"), link("a", "c")},
		"a device":            {good, {name: "dev/x", kind: tar.TypeChar}},
		"a hard link":         {good, {name: "x", kind: tar.TypeLink, link: "../../etc/passwd"}},
		"a manifest's link":   {link(manifestName, "x")},
		"an empty link":       {good, link("x", "")},
		"a name that is long": {good, file(strings.Repeat("x/", 600) + "x")},
	} {
		if _, err := Read(bytes.NewReader(archived(t, members...))); !errors.Is(err, Err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Read(bytes.NewReader(archived(t, good, file("sys/a/b"), link("sys/c", "a/b"), link("proc/1/ns/user", "user:[1]")))); err != nil {
		t.Error(err)
	}
}

// An archive of a version that did not look at a file says which version that was.
func TestOlderSnapshots(t *testing.T) {
	for version, want := range map[string]string{"0.1": "taken by an older p2pcheck (0.1), which did not look at ", "unknown": "taken by an older p2pcheck, which did not look at "} {
		text, err := json.Marshal(manifest{schema, version, patterns()[1:]})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Read(bytes.NewReader(archived(t, member{name: manifestName, kind: tar.TypeReg, data: string(text)})))
		if !errors.Is(err, Err) || !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Error(err)
		}
	}
}

// A small archive cannot make much: depth, count and memory are bounded, and the error says which. Each is
// refused after a second of processor time, with threefold slack.
func TestSnapshotsThatAreTooLarge(t *testing.T) {
	testenv.Exhaustive(t)
	good := goodManifest(t)
	several := func(n int, of func(i int) member) []member {
		out := []member{good}
		for i := range n {
			out = append(out, of(i))
		}
		return out
	}
	deep := func(i int) string { return fmt.Sprintf("%d/", i) + strings.Repeat("x/", depthLimit-2) + "x" }
	for what, c := range map[string]struct {
		members []member
		want    string
	}{
		"deep":        {several(1, func(int) member { return member{name: deep(0) + "/x", kind: tar.TypeReg} }), "deeper than 32"},
		"directories": {several(EntryLimit/(depthLimit-1)+1, func(i int) member { return member{name: deep(i), kind: tar.TypeDir} }), "more than 1000000 files and directories"},
		"large": {several(20, func(i int) member {
			return member{name: fmt.Sprint(i), kind: tar.TypeReg, data: strings.Repeat("x", FileLimit-1)}
		}), "larger than 192 MiB"},
		"one file": {several(1, func(int) member { return member{name: "x", kind: tar.TypeReg, data: strings.Repeat("x", FileLimit+1)} }), "larger than 192 MiB"},
		"names of links": {several(210_000, func(i int) member {
			return member{name: fmt.Sprint(i), kind: tar.TypeSymlink, link: strings.Repeat("x", 1000)}
		}), "larger than 192 MiB"},
	} {
		t.Run(what, func(t *testing.T) {
			data := archived(t, c.members...)
			begun := testenv.ProcessTime(t)
			_, err := Read(bytes.NewReader(data))
			took := testenv.ProcessTime(t) - begun
			if !errors.Is(err, Err) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			t.Logf("%d KiB refused in %v", len(data)>>10, took)
			if took > 3*time.Second {
				t.Errorf("refused in %v", took)
			}
		})
	}
	// What stands behind the end is bounded, too.
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for _, part := range [][]byte{archived(t, good), make([]byte, 64<<20)} {
		if _, err := z.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(&b); !errors.Is(err, Err) || !strings.Contains(err.Error(), "more behind its end") {
		t.Error(err)
	}
}
