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
		"a part that is long": {good, file(strings.Repeat("x", NameLimit+1))},
		"a link's long text":  {good, link("x", strings.Repeat("x/", 600)+"x")},
		"a pipe":              {good, {name: "x", kind: tar.TypeFifo}},
		"a block device":      {good, {name: "dev/sda", kind: tar.TypeBlock}},
		"a reserved type":     {good, {name: "x", kind: '7'}},
		"a type of a vendor":  {good, {name: "x", kind: 'Z'}},
		"a backslash":         {good, file("sys\\x")},
		"up by a backslash":   {good, file("..\\x")},
		"a dot in the middle": {good, file("sys/./x")},
		"a file for a dir":    {good, file("a/b"), file("a")},
		"a dir for a file":    {good, file("a"), {name: "a/", kind: tar.TypeDir}},
		"a dir for a link":    {good, link("a", "b"), {name: "a/", kind: tar.TypeDir}},
		"a link twice":        {good, link("a", "b"), link("a", "c")},
		"a link to itself up": {good, link("a/b", "../../a/b")},
		"a link of dots":      {good, link("x", "..")},
		"a deep link up":      {good, link("a/b/c", "../../../d")},
		"a manifest at last":  {file("sys/x"), good},
		"a deep name":         {good, file(strings.Repeat("x/", depthLimit) + "x")},
		"unread and below it": {good, {name: "a", kind: tar.TypeReg, pax: map[string]string{unreadableKey: "1"}}, file("a/b")},
	} {
		if _, err := Read(bytes.NewReader(archived(t, members...))); !errors.Is(err, Err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Read(bytes.NewReader(archived(t, good, file("sys/a/b"), link("sys/c", "a/b"), link("proc/1/ns/user", "user:[1]")))); err != nil {
		t.Error(err)
	}
}

// A file of another kind, or a part of an archive, is refused with the reason.
func TestReadRefusesOtherFiles(t *testing.T) {
	good := archived(t, goodManifest(t), member{name: "sys/x", kind: tar.TypeReg, data: "x"})
	packed := func(parts ...[]byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		for _, part := range parts {
			if _, err := z.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	whole := packed(good)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 0xff
	sum := bytes.Clone(whole)
	sum[len(sum)-6]++
	header := bytes.Clone(good)
	header[0]++
	for what, c := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":               {nil, "it is empty"},
		"an empty gzip":         {packed(), "entry 0"},
		"gzip's magic alone":    {[]byte("\x1f\x8b"), "cut off"},
		"a text":                {[]byte("hello"), "not an archive"},
		"a zip":                 {[]byte("PK\x03\x04" + strings.Repeat("x", 600)), "not an archive"},
		"xz":                    {[]byte("\xfd7zXZ\x00" + strings.Repeat("x", 600)), "not an archive"},
		"gzip of a text":        {packed([]byte(strings.Repeat("hello ", 200))), "damaged"},
		"half of it":            {whole[:len(whole)/2], "cut off"},
		"all but the checksum":  {whole[:len(whole)-8], "cut off"},
		"another checksum":      {sum, "damaged"},
		"a bit of the contents": {flipped, ""},
		"a bit of a header":     {packed(header), "damaged"},
		"tar without an end":    {packed(good[:1024]), ""},
		"much behind the end":   {packed(good, make([]byte, endLimit+1)), "more behind its end"},
		"another archive":       {append(bytes.Clone(whole), packed(make([]byte, endLimit+1))...), "more behind its end"},
	} {
		_, err := Read(bytes.NewReader(c.data))
		if !errors.Is(err, Err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, data := range map[string][]byte{"gzip": whole, "plain": good, "padded": packed(good, make([]byte, 10240))} {
		if _, err := Read(bytes.NewReader(data)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
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

// A small archive cannot make much: depth, count and memory are bounded, and the error says which. Each is refused
// at the file that exceeds the bound: no more than most of its bytes are read.
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
		most    int // bytes that may be read
	}{
		"deep":        {several(1, func(int) member { return member{name: deep(0) + "/x", kind: tar.TypeReg} }), "deeper than 32", 64 << 10},
		"directories": {several(entryLimit/(depthLimit-1)+1, func(i int) member { return member{name: deep(i), kind: tar.TypeDir} }), "more than 1000000 files and directories", 33 << 20},
		"large": {several(20, func(i int) member {
			return member{name: fmt.Sprint(i), kind: tar.TypeReg, data: strings.Repeat("x", fileLimit-1)}
		}), "larger than 192 MiB", totalLimit + 16<<20},
		"one file": {several(1, func(int) member { return member{name: "x", kind: tar.TypeReg, data: strings.Repeat("x", fileLimit+1)} }), "larger than 192 MiB", 64 << 10},
		"names of links": {several(210_000, func(i int) member {
			return member{name: fmt.Sprint(i), kind: tar.TypeSymlink, link: strings.Repeat("x", 1000)}
		}), "larger than 192 MiB", 2 * totalLimit},
	} {
		t.Run(what, func(t *testing.T) {
			data := archived(t, c.members...)
			begun := testenv.ProcessTime(t)
			r := bytes.NewReader(data)
			_, err := Read(r)
			took, read := testenv.ProcessTime(t)-begun, len(data)-r.Len()
			if !errors.Is(err, Err) || !strings.Contains(fmt.Sprint(err), c.want) || read > c.most {
				t.Errorf("%v after %d bytes, want %s after %d", err, read, c.want, c.most)
			}
			t.Logf("%d KiB of %d read, in %v", read>>10, len(data)>>10, took)
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
