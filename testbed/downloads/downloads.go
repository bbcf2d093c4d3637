// SPDX-License-Identifier: Apache-2.0

package downloads

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Kinds of downloads.
const (
	Deb    = "deb"       // a binary package of Debian's
	Source = "source"    // a file of a source package of Debian's
	Module = "go-module" // as the Go module proxy gives it
)

// Item is one file that was downloaded.
type Item struct {
	Kind         string `json:"kind"`
	Name         string `json:"name"`
	Version      string `json:"version"`
	Architecture string `json:"architecture,omitempty"`
	SHA256       string `json:"sha256"` // in hex; empty only if Preinstalled
	Size         int64  `json:"size"`   // in bytes
	// Where in the archive it is: "bookworm-security", "main". Empty for Go modules.
	Suite     string `json:"suite,omitempty"`
	Component string `json:"component,omitempty"`
	// For are the parts of set-up that use it: "kernel 6.12", "qemu", "testbed/go.mod".
	For []string `json:"for"`
	// Preinstalled: the machine had it already. Size and hash are then those of apt's
	// indexes, if these still have the version.
	Preinstalled bool `json:"preinstalled,omitempty"`

	file string // what an index calls it
}

// list is the form of a record and of the manifest.
type list struct {
	Downloads []Item `json:"downloads"`
}

// RecordFile is what a record is called.
const RecordFile = ".downloads.json"

// ManifestFile is the manifest of a build directory.
const ManifestFile = "manifest.json"

// recordDirs are where records lie below a build directory.
var recordDirs = []string{"host/*", "qemu", "kernels/*", "roots/*", "rxe-provider/*", "pyverbs/*", "libfabric", "runtimes",
	"qemu-arm64", "userland-arm64", "slurm/*", "arm64*/kernels/*", "arm64*/roots/*"}

// ErrNone says that there is no list: nothing has been set up.
var ErrNone = errors.New("set-up has left no list of what it downloaded")

// WriteRecord writes one part's list, in one step. An item that is not Preinstalled must have
// a hash.
func WriteRecord(file string, items []Item) error {
	items = merge(items)
	for _, i := range items {
		if err := i.check(); err != nil {
			return err
		}
	}
	return write(file, items)
}

func (i Item) check() error {
	sum, err := hex.DecodeString(i.SHA256)
	known := err == nil && len(sum) == 32 && i.Size > 0
	switch {
	case i.Kind == "" || i.Name == "" || i.Version == "" || len(i.For) == 0:
		return fmt.Errorf("a download without kind, name, version or purpose: %+v", i)
	case !known && !(i.Preinstalled && i.SHA256 == "" && i.Size == 0):
		return fmt.Errorf("%s %s has no SHA-256 or no size: %q, %d", i.Name, i.Version, i.SHA256, i.Size)
	}
	return nil
}

// Read reads a record or a manifest.
func Read(file string) ([]Item, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var l list
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, i := range l.Downloads {
		if err := i.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return l.Downloads, nil
}

// records are the items of all records of a build directory.
func records(build string) ([]Item, error) {
	var items []Item
	for _, dir := range recordDirs {
		files, err := filepath.Glob(filepath.Join(build, dir, RecordFile))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			// A directory that is being made, or that a killed set-up left unfinished, is left out.
			if name := filepath.Base(filepath.Dir(file)); strings.HasPrefix(name, ".") || strings.HasPrefix(name, "stage-") {
				continue
			}
			some, err := Read(file)
			if errors.Is(err, os.ErrNotExist) { // replaced just now
				continue
			}
			if err != nil {
				return nil, err
			}
			items = append(items, some...)
		}
	}
	return items, nil
}

// WriteManifest writes the manifest of a build directory: all records, and the Go
// modules of the checkout root that Go has downloaded. A manifest that is right already
// is left alone.
func WriteManifest(root, build string) error {
	if err := os.MkdirAll(build, 0o755); err != nil {
		return err
	}
	// Of two that write it the later one has read all records that there are.
	lock, err := os.OpenFile(filepath.Join(build, ".lock-manifest"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	items, err := records(build)
	if err != nil {
		return err
	}
	modules, err := modules(root)
	if err != nil {
		return err
	}
	return write(filepath.Join(build, ManifestFile), merge(append(items, modules...)))
}

// merge sorts, and makes one item of those that are the same file.
func merge(items []Item) []Item {
	type identity struct{ kind, name, version, architecture, sum string }
	sums := map[identity]string{} // of those whose hash is known, without it
	for _, i := range items {
		if i.SHA256 != "" {
			sums[identity{i.Kind, i.Name, i.Version, i.Architecture, ""}] = i.SHA256
		}
	}
	all := map[identity]Item{}
	for _, i := range items {
		id := identity{i.Kind, i.Name, i.Version, i.Architecture, i.SHA256}
		if i.SHA256 == "" {
			id.sum = sums[identity{i.Kind, i.Name, i.Version, i.Architecture, ""}]
		}
		had, ok := all[id]
		if !ok {
			i.For = slices.Clone(i.For)
			all[id] = i
			continue
		}
		used := append(had.For, i.For...)
		// The fuller one counts: downloaded, in a suite, with a hash.
		if rank(i) > rank(had) {
			had = i
		}
		had.For = used
		all[id] = had
	}
	out := make([]Item, 0, len(all))
	for _, i := range all {
		slices.Sort(i.For)
		i.For = slices.Compact(i.For)
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b Item) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.Architecture, b.Architecture), cmp.Compare(a.SHA256, b.SHA256))
	})
	return out
}

func rank(i Item) int {
	n := 0
	for bit, yes := range []bool{i.Suite != "", i.SHA256 != "", !i.Preinstalled} {
		if yes {
			n |= 1 << bit
		}
	}
	return n
}

// write writes a list, in one step; the same list stays as it is.
func write(file string, items []Item) error {
	if items == nil {
		items = []Item{}
	}
	text, err := json.MarshalIndent(list{items}, "", "\t")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, text) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
