// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/image-spec/specs-go/v1"
)

// sh runs a command from the top of the repository, and returns what it printed.
func sh(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// build builds p2pcheck as the image has it, but for -trimpath: so it takes what
// other tests have compiled.
func build(t *testing.T, root string, env ...string) {
	t.Helper()
	sh(t, env, "go", "build", "-ldflags", "-s -w -extldflags=-Wl,-z,lazy", "-o", filepath.Join(root, "usr/bin/p2pcheck"), "./cmd/p2pcheck")
}

// staticDir is where the static image was unpacked, once for all tests.
var staticDir string

func staticImage(t *testing.T) string {
	t.Helper()
	if staticDir == "" {
		src := t.TempDir()
		build(t, src, "CGO_ENABLED=0")
		unpacked := imageOf(t, src)
		var err error
		if staticDir, err = os.MkdirTemp("", "p2pcheck-image-"); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(staticDir, "root"), os.DirFS(unpacked)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(staticDir, "root")
}

// imageOf makes an image of a root, and unpacks it as a container's runtime does.
func imageOf(t *testing.T, root string) (unpacked string) {
	t.Helper()
	dir := t.TempDir()
	tool, file := filepath.Join(dir, "oci-image"), filepath.Join(dir, "image.tar")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool, "./cmd/oci-image").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sh(t, nil, tool, "-o", file, "-entrypoint", "/usr/bin/p2pcheck", "linux/amd64="+root)
	blobs := map[string][]byte{}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	eachFile(t, f, func(h *tar.Header, data []byte) {
		blobs[strings.ReplaceAll(strings.TrimPrefix(h.Name, "blobs/"), "/", ":")] = data
	})
	read := func(name string, into any) {
		if err := json.Unmarshal(blobs[name], into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var index, all v1.Index
	var manifest v1.Manifest
	read("index.json", &index)
	read(string(index.Manifests[0].Digest), &all)
	read(string(all.Manifests[0].Digest), &manifest)
	z, err := gzip.NewReader(bytes.NewReader(blobs[string(manifest.Layers[0].Digest)]))
	if err != nil {
		t.Fatal(err)
	}
	unpacked = filepath.Join(dir, "root")
	eachFile(t, z, func(h *tar.Header, data []byte) {
		name := filepath.Join(unpacked, h.Name)
		var err error
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, name)
		default:
			err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data, h.FileInfo().Mode()))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return unpacked
}

func eachFile(t *testing.T, r io.Reader, do func(*tar.Header, []byte)) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		do(h, data)
	}
}
