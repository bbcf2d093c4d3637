// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go/v1"
)

// tree makes files below a directory.
func tree(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"usr/bin/program": 0o750, "usr/share/doc/text": 0o640} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(program), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// archive reads a tar archive.
func archive(t *testing.T, r io.Reader) (headers []*tar.Header, files map[string][]byte) {
	t.Helper()
	files = map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return headers, files
		}
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}

// decode reads a blob that a descriptor is of, or a file of the layout.
func decode[T any](t *testing.T, data []byte) T {
	t.Helper()
	var v T
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

// Every digest and size of the archive is right, and the image says what it was
// asked to.
func TestImage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	var said bytes.Buffer
	err := run([]string{"-o", out, "-ref", "v1", "-entrypoint", "/usr/bin/program", "-port", "9838/tcp", "-label", "a.b=c d", "-env", "B=2", "-env", "A=1",
		"linux/amd64=" + tree(t, "amd"), "linux/arm64=" + tree(t, "arm")}, &said)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, files := archive(t, f)
	if l := decode[v1.ImageLayout](t, files["oci-layout"]); l.Version != "1.0.0" {
		t.Errorf("%+v", l)
	}
	seen := map[string]bool{"oci-layout": true, "index.json": true, "blobs/": true, "blobs/sha256/": true}
	blob := func(d v1.Descriptor, mediaType string) []byte {
		t.Helper()
		name := "blobs/sha256/" + d.Digest.Encoded()
		data, ok := files[name]
		if !ok || int64(len(data)) != d.Size || digest.FromBytes(data) != d.Digest || d.MediaType != mediaType {
			t.Fatalf("%+v: %d bytes", d, len(data))
		}
		seen[name] = true
		return data
	}
	index := decode[v1.Index](t, files["index.json"])
	if len(index.Manifests) != 1 || index.SchemaVersion != 2 || index.Manifests[0].Annotations[v1.AnnotationRefName] != "v1" {
		t.Fatalf("%+v", index)
	}
	if want := out + " " + index.Manifests[0].Digest.String() + "\n"; said.String() != want {
		t.Errorf("it says %q, want %q", &said, want)
	}
	all := decode[v1.Index](t, blob(index.Manifests[0], v1.MediaTypeImageIndex))
	if len(all.Manifests) != 2 || all.MediaType != v1.MediaTypeImageIndex {
		t.Fatalf("%+v", all)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		if p := all.Manifests[i].Platform; p.OS != "linux" || p.Architecture != arch {
			t.Errorf("%+v", p)
		}
		manifest := decode[v1.Manifest](t, blob(all.Manifests[i], v1.MediaTypeImageManifest))
		image := decode[v1.Image](t, blob(manifest.Config, v1.MediaTypeImageConfig))
		if image.OS != "linux" || image.Architecture != arch || image.Config.User != "65532:65532" || !slices.Equal(image.Config.Entrypoint, []string{"/usr/bin/program"}) ||
			image.Config.Labels["a.b"] != "c d" || !slices.Equal(image.Config.Env, []string{"A=1", "B=2"}) || image.RootFS.Type != "layers" || image.Created.Unix() != 1700000000 {
			t.Errorf("%+v", image)
		}
		if _, ok := image.Config.ExposedPorts["9838/tcp"]; !ok {
			t.Errorf("%+v", image.Config)
		}
		if len(manifest.Layers) != 1 || len(image.RootFS.DiffIDs) != 1 {
			t.Fatalf("%+v, %+v", manifest.Layers, image.RootFS)
		}
		z, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0], v1.MediaTypeImageLayerGzip)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil || digest.FromBytes(plain) != image.RootFS.DiffIDs[0] {
			t.Errorf("the layer is not what the configuration says: %v", err)
		}
		headers, content := archive(t, bytes.NewReader(plain))
		var said []string
		for _, h := range headers {
			if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(time.Unix(1700000000, 0)) {
				t.Errorf("%+v", h)
			}
			said = append(said, h.FileInfo().Mode().String()+" "+h.Name)
		}
		want := []string{"Lrwxrwxrwx bin", "drwxr-xr-x usr/", "drwxr-xr-x usr/bin/", "-rwxr-xr-x usr/bin/program", "drwxr-xr-x usr/share/", "drwxr-xr-x usr/share/doc/", "-rw-r--r-- usr/share/doc/text"}
		if !slices.Equal(said, want) || string(content["usr/bin/program"]) != arch[:3] || headers[0].Linkname != "usr/bin" {
			t.Errorf("%q", said)
		}
	}
	for name := range files {
		if !seen[name] {
			t.Errorf("nothing leads to %s", name)
		}
	}
}

// The same files make the same bytes, whatever their owners and times are.
func TestReproducible(t *testing.T) {
	var images [2][]byte
	for i := range images {
		dir := tree(t, "same")
		late := time.Now().Add(time.Duration(i) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "usr/bin/program"), late, late); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "usr/bin/program"), []os.FileMode{0o700, 0o777}[i]); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "image.tar")
		if err := run([]string{"-o", out, "-label", "x=1", "-label", "y=2", "linux/amd64=" + dir}, io.Discard); err != nil {
			t.Fatal(err)
		}
		var err error
		if images[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("the bytes differ")
	}
}

func TestMistakes(t *testing.T) {
	dir := tree(t, "")
	out := filepath.Join(t.TempDir(), "image.tar")
	for _, args := range [][]string{
		{}, {"-o", out}, {"linux/amd64=" + dir}, {"-o", out, "linux=" + dir}, {"-o", out, dir}, {"-o", out, "linux/amd64=" + dir + "/none"},
		{"-o", out, "linux/amd64=" + t.TempDir()}, {"-o", out, "linux/amd64=" + dir, "linux/amd64=" + dir}, {"-o", out + "/none", "linux/amd64=" + dir},
		{"-o", out, "-label", "x", "linux/amd64=" + dir}, {"-o", out, "linux/amd64=/dev/pts"},
	} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%q is carried out", args)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "soon")
	if err := run([]string{"-o", out, "linux/amd64=" + dir}, io.Discard); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Error(err)
	}
	if names, err := os.ReadDir(filepath.Dir(out)); err != nil || len(names) != 0 {
		t.Error(names, err)
	}
}
