// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"path"
	"strings"

	"github.com/gpurdma/gpurdma/internal/files"
	"github.com/gpurdma/gpurdma/p2p/redact"
)

// Write writes the archive. version is the version of the program, which the archive contains. The errors are those of
// w.
func (s *Snapshot) Write(w io.Writer, version string) error { return WriteFiles(w, version, s.All()) }

// WriteFiles writes files as an archive, as they are: it redacts nothing. A directory must come before its files.
func WriteFiles(w io.Writer, version string, all iter.Seq2[string, files.File]) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	head, err := json.Marshal(manifest{schema, version, patterns()})
	if err != nil {
		return err
	}
	if err := put(archive, tar.Header{Name: manifestName, Typeflag: tar.TypeReg}, head); err != nil {
		return err
	}
	for name, f := range all {
		h := tar.Header{Name: name, Typeflag: tar.TypeReg}
		switch {
		case f.Unreadable(name):
			h.PAXRecords = map[string]string{unreadableKey: "1"}
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		case f.Dir:
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		}
		if err := put(archive, h, f.Data); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func put(archive *tar.Writer, h tar.Header, data []byte) error {
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

// All yields the files of the archive, with their names in the archive. A directory comes before its files.
func (s *Snapshot) All() iter.Seq2[string, files.File] {
	return func(yield func(string, files.File) bool) {
		for name, f := range s.ofMachine() {
			if as, f := s.renamed(name, f); !yield(as, f) {
				return
			}
		}
	}
}

// renamed is a file of the machine as the archive has it.
func (s *Snapshot) renamed(name string, f files.File) (string, files.File) {
	as := s.redactor.Path(name)
	switch {
	case f.Unreadable(name):
		f.Link = path.Base(as)
	case f.Link != "":
		f.Link = s.redactor.Link(name, path.Join(path.Dir(name), f.Link))
	}
	return as, f
}

// ofMachine are the files of the archive, under the names that they have on the machine.
func (s *Snapshot) ofMachine() iter.Seq2[string, files.File] {
	return func(yield func(string, files.File) bool) {
		used := s.usedNetworks()
		for name, f := range s.tree.All() {
			if s.otherNetwork(name, used) || s.emptyPlace(name) || otherCounter(name) {
				continue
			}
			if !yield(name, f) {
				return
			}
		}
	}
}

// usedNetworks are the network devices that an RDMA device uses, by the names in the archive.
func (s *Snapshot) usedNetworks() map[string]bool {
	used := map[string]bool{}
	for name, f := range s.tree.All() {
		if path.Base(path.Dir(name)) == "ndevs" || path.Base(name) == "parent" {
			used[strings.TrimSpace(string(f.Data))] = true
		}
	}
	return used
}

// otherNetwork reports a file of a network device that no RDMA device uses. Only the device's name is kept, which variables of
// libraries may have. Ports of a bond say why their function has no RDMA device.
func (s *Snapshot) otherNetwork(name string, used map[string]bool) bool {
	before, rest, ok := strings.Cut(name, "/net/")
	device, file, below := strings.Cut(rest, "/")
	ofRDMA := strings.Contains(before+"/", "/infiniband/")
	return ok && below && !ofRDMA && strings.HasPrefix(name, "sys/") && !strings.HasPrefix(file, "bonding_slave") && !used[s.redactor.Name(device)]
}

// emptyPlace reports a place of a GID table that is not in use, of which there are hundreds. The first one stays, so that the table
// exists.
func (s *Snapshot) emptyPlace(name string) bool {
	port, place := "", path.Base(name)
	switch dir := path.Dir(name); {
	case path.Base(dir) == "gids":
		port = path.Dir(dir)
	case path.Base(path.Dir(dir)) == "gid_attrs":
		port = path.Dir(path.Dir(dir))
	}
	if port == "" || place == "0" {
		return false
	}
	gid, there := s.tree.Find(path.Join(port, "gids", place))
	return there && !gid.Dir && (gid.Link != "" || strings.Trim(string(gid.Data), "0:\n") == "")
}

// otherCounter reports a counter that no check reads.
func otherCounter(name string) bool {
	return path.Base(path.Dir(name)) == "hw_counters" && !redact.Counter(path.Base(name))
}
