// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

// archive writes a tar archive of names and texts, in turns.
func archive(t *testing.T, files ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tw := tar.NewWriter(f)
	for n := 0; n < len(files); n += 2 {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: files[n], Mode: 0o644, Size: int64(len(files[n+1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(files[n+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

const image = `{"schemaVersion": 2}`

var imageDigest = digest.FromString(image)

func index(digests ...digest.Digest) string {
	var all []string
	for _, d := range digests {
		all = append(all, `{"digest": "`+d.String()+`"}`)
	}
	return `{"schemaVersion": 2, "manifests": [` + strings.Join(all, ", ") + `]}`
}

func blob(d digest.Digest) string { return "blobs/sha256/" + d.Encoded() }

// yaml writes a manifest.
func yaml(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestManifests(t *testing.T) {
	good := archive(t, "index.json", index(imageDigest), blob(imageDigest), image)
	for _, name := range []string{"registry.test/p2pcheck", "10.0.0.1:5000/a/b-c/p2p_check", "localhost:5000/p2pcheck"} {
		dir := filepath.Join(t.TempDir(), "deep", "deploy")
		var out bytes.Buffer
		if err := run([]string{"-archive", good, "-image", name, "-o", dir, yaml(t, "# a comment\n  image: "+placeholder+"\n")}, &out); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, "pod.yaml"))
		if want := "# a comment\n  image: " + name + "@" + imageDigest.String() + "\n"; err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		if !strings.Contains(out.String(), name+"@"+imageDigest.String()) {
			t.Errorf("it says %q", &out)
		}
	}
}

func TestMistakes(t *testing.T) {
	good := archive(t, "index.json", index(imageDigest), blob(imageDigest), image)
	pod := yaml(t, "image: "+placeholder+"\n")
	dir := filepath.Join(t.TempDir(), "deploy")
	for _, c := range []struct{ archive, image, pod, want string }{
		{"", "registry.test/p", pod, "needed"},
		{good, "", pod, "IMAGE=REGISTRY/"},
		{good + ".none", "registry.test/p", pod, "make image"},
		{good, "registry.test/p:v1", pod, "without tag"},
		{good, "registry.test:5000/p:v1", pod, "without tag"},
		{good, "registry.test/p@" + imageDigest.String(), pod, "without tag"},
		{good, "registry.test/P", pod, "without tag"},
		{good, "p2pcheck", pod, "REGISTRY/NAME"},
		{good, "registry.test/p q", pod, "REGISTRY/NAME"},
		{good, "registry.test/p\n#", pod, "REGISTRY/NAME"},
		{good, "registry.example/p2pcheck", pod, "placeholder"},
		{good, "registry.example:5000/p2pcheck", pod, "placeholder"},
		{good, "registry.test/p", yaml(t, "image: registry.example/p2pcheck:latest\n"), "has no image"},
		{archive(t, "index.json", index()), "registry.test/p", pod, "0 images"},
		{archive(t, "index.json", index(imageDigest, imageDigest), blob(imageDigest), image), "registry.test/p", pod, "2 images"},
		{archive(t, blob(imageDigest), image), "registry.test/p", pod, "0 images"},
		{archive(t, "index.json", index(imageDigest), blob(imageDigest), image+" "), "registry.test/p", pod, "damaged"},
		{archive(t, "index.json", index(imageDigest)), "registry.test/p", pod, "damaged"},
		{archive(t, "index.json", index("sha256:0")), "registry.test/p", pod, "digest"},
		{archive(t, "index.json", "{"), "registry.test/p", pod, "index.json"},
	} {
		if err := run([]string{"-archive", c.archive, "-image", c.image, "-o", dir, c.pod}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("something was written")
	}
}
