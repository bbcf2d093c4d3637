// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	_ "crypto/sha256" // digest's only one here
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/gpurdma/gpurdma/internal/wholefile"
)

// placeholder is the image of the repository's manifests: of a name that is reserved for
// examples, and of a digest that no image has.
var placeholder = "registry.example/p2pcheck@sha256:" + strings.Repeat("0", 64)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("manifests", flag.ContinueOnError)
	archive := flags.String("archive", "", "the image's `archive`")
	image := flags.String("image", "", "the image's `name` in a registry, without tag and digest")
	output := flags.String("o", "", "the `directory` to write to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *archive == "" || *output == "" || flags.NArg() == 0 {
		return errors.New("-archive FILE, -image REGISTRY/NAME, -o DIRECTORY and at least one manifest are needed")
	}
	if err := checkName(*image); err != nil {
		return err
	}
	d, err := digestOf(*archive)
	if err != nil {
		return err
	}
	texts := map[string][]byte{} // all or none
	for _, file := range flags.Args() {
		text, err := fill(file, *image+"@"+d.String())
		if err != nil {
			return err
		}
		texts[filepath.Base(file)] = text
	}
	if len(texts) != flags.NArg() {
		return errors.New("two manifests have the same name")
	}
	if err := os.MkdirAll(*output, 0o755); err != nil {
		return err
	}
	for name, text := range texts {
		if err := wholefile.Write(filepath.Join(*output, name), 0o644, func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
			return err
		}
		fmt.Fprintln(stdout, filepath.Join(*output, name), *image+"@"+d.String())
	}
	return nil
}

// name is a registry, maybe with a port, and what the image is called there.
var name = regexp.MustCompile(`^[a-z0-9]+(?:[.-]+[a-z0-9]+)*(?::[0-9]+)?(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)+$`)

func checkName(image string) error {
	registry, _, _ := strings.Cut(image, "/")
	registry, _, _ = strings.Cut(registry, ":")
	switch {
	case image == "":
		return errors.New("the name of the image in your registry is missing: make manifests IMAGE=REGISTRY/p2pcheck")
	case !name.MatchString(image):
		return fmt.Errorf("%q is no REGISTRY/NAME without tag and digest", image)
	case registry == "example" || strings.HasSuffix(registry, ".example"):
		return fmt.Errorf("%q is a placeholder: name an image of your registry", image)
	}
	return nil
}

// digestOf is the digest of the one image of an archive: of the index of its platforms,
// which a registry knows it by.
func digestOf(archive string) (digest.Digest, error) {
	f, err := os.Open(archive)
	if err != nil {
		return "", fmt.Errorf("%w: make image writes it", err)
	}
	defer f.Close()
	blobs := map[string]digest.Digest{}
	var index v1.Index
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", archive, err)
		}
		var text bytes.Buffer
		d, err := digest.SHA256.FromReader(io.TeeReader(tr, &text))
		if err != nil {
			return "", fmt.Errorf("%s: %w", archive, err)
		}
		blobs[h.Name] = d
		if h.Name == v1.ImageIndexFile {
			if err := json.Unmarshal(text.Bytes(), &index); err != nil {
				return "", fmt.Errorf("%s: %s: %w", archive, h.Name, err)
			}
		}
	}
	if len(index.Manifests) != 1 {
		return "", fmt.Errorf("%s has %d images, not one", archive, len(index.Manifests))
	}
	d := index.Manifests[0].Digest
	if err := d.Validate(); err != nil {
		return "", fmt.Errorf("%s: %w", archive, err)
	}
	if blob := v1.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded(); blobs[blob] != d {
		return "", fmt.Errorf("%s is damaged: %s is not of its digest", archive, blob)
	}
	return d, nil
}

// fill puts an image in the place of a manifest's placeholder.
func fill(file, image string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(text, []byte(placeholder)) {
		return nil, fmt.Errorf("%s has no image %s", file, placeholder)
	}
	return bytes.ReplaceAll(text, []byte(placeholder), []byte(image)), nil
}
