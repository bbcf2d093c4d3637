// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	_ "crypto/sha256" // digest's only one here
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	"github.com/opencontainers/image-spec/specs-go/v1"
)

// layout is an image layout in the making: blobs under their digests, and the
// manifests of the platforms.
type layout struct {
	created   time.Time
	blobs     map[digest.Digest][]byte
	manifests []v1.Descriptor
}

func newLayout(created time.Time) *layout {
	return &layout{created: created, blobs: map[digest.Digest][]byte{}}
}

// blob adds a blob and says what it is.
func (l *layout) blob(mediaType string, data []byte) v1.Descriptor {
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	l.blobs[d.Digest] = data
	return d
}

// document adds a blob that is a JSON document.
func (l *layout) document(mediaType string, v any) (v1.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return l.blob(mediaType, data), nil
}

// add adds the image of one platform, whose files are below a directory.
func (l *layout) add(p v1.Platform, dir string, config v1.ImageConfig) error {
	if slices.ContainsFunc(l.manifests, func(d v1.Descriptor) bool { return d.Platform.OS == p.OS && d.Platform.Architecture == p.Architecture }) {
		return fmt.Errorf("%s/%s is named twice", p.OS, p.Architecture)
	}
	plain, packed, err := layer(dir, l.created)
	if err != nil {
		return err
	}
	configured, err := l.document(v1.MediaTypeImageConfig, v1.Image{
		Created: &l.created, Platform: p, Config: config,
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain)}},
		History: []v1.History{{Created: &l.created, CreatedBy: "oci-image"}},
	})
	if err != nil {
		return err
	}
	manifest, err := l.document(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Config: configured,
		Layers: []v1.Descriptor{l.blob(v1.MediaTypeImageLayerGzip, packed)}, Annotations: config.Labels,
	})
	if err != nil {
		return err
	}
	manifest.Platform = &p
	l.manifests = append(l.manifests, manifest)
	return nil
}

// write writes the archive: one image of all platforms, under a name. A registry knows
// it by the digest of the index of its platforms.
func (l *layout) write(w io.Writer, ref string) (digest.Digest, error) {
	all, err := l.document(v1.MediaTypeImageIndex, v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: l.manifests})
	if err != nil {
		return "", err
	}
	all.Annotations = map[string]string{v1.AnnotationRefName: ref}
	index, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{all}})
	if err != nil {
		return "", err
	}
	version, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return "", err
	}
	files := map[string][]byte{v1.ImageLayoutFile: version, v1.ImageIndexFile: index}
	for d, data := range l.blobs {
		files[v1.ImageBlobsDir+"/"+d.Algorithm().String()+"/"+d.Encoded()] = data
	}
	tw := tar.NewWriter(w)
	for _, dir := range []string{v1.ImageBlobsDir + "/", v1.ImageBlobsDir + "/sha256/"} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: l.created, Format: tar.FormatUSTAR}); err != nil {
			return "", err
		}
	}
	for _, name := range sorted(files) {
		data := files[name]
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: l.created, Format: tar.FormatUSTAR}); err != nil {
			return "", err
		}
		if _, err := io.Copy(tw, bytes.NewReader(data)); err != nil {
			return "", err
		}
	}
	return all.Digest, tw.Close()
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
