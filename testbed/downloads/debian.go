// SPDX-License-Identifier: Apache-2.0

package downloads

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Debs are the items of .deb files, whose place is looked up in the indexes that apt
// keeps in lists.
func Debs(ctx context.Context, lists, purpose string, files []string) ([]Item, error) {
	items := make([]Item, 0, len(files))
	for _, file := range files {
		out, err := exec.CommandContext(ctx, "dpkg-deb", "-f", file, "Package", "Version", "Architecture").Output()
		if err != nil {
			return nil, fmt.Errorf("dpkg-deb -f %s: %w", file, err)
		}
		i := Item{Kind: Deb, For: []string{purpose}, file: filepath.Base(file)}
		eachField(out, func(key, value string) {
			switch key {
			case "Package":
				i.Name = value
			case "Version":
				i.Version = value
			case "Architecture":
				i.Architecture = value
			}
		})
		if i.SHA256, i.Size, err = hash(file); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, locate(ctx, lists, items)
}

// SourceFile is the item of one file of a source package.
func SourceFile(ctx context.Context, lists, purpose, name, version, file string) (Item, error) {
	i := Item{Kind: Source, Name: name, Version: version, Architecture: "source", For: []string{purpose}, file: filepath.Base(file)}
	var err error
	if i.SHA256, i.Size, err = hash(file); err != nil {
		return i, err
	}
	items := []Item{i}
	err = locate(ctx, lists, items)
	return items[0], err
}

// Host are the items of the packages that a machine has: those in files, which were
// just installed; those of old that are installed still; and of names, those that were
// there before.
func Host(ctx context.Context, lists, purpose string, old []Item, files, names []string) ([]Item, error) {
	out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Abbrev}|${Package}|${Version}|${Architecture}\n").Output()
	if err != nil {
		return nil, fmt.Errorf("dpkg-query: %w", err)
	}
	installed := map[key]bool{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Split(strings.TrimSpace(line), "|"); len(f) == 4 && strings.HasPrefix(f[0], "ii") {
			installed[key{f[1], f[2], f[3]}] = true
		}
	}
	items, err := Debs(ctx, lists, purpose, files)
	if err != nil {
		return nil, err
	}
	have := map[key]bool{}
	for _, i := range items {
		have[i.key()] = true
	}
	for _, i := range old {
		if installed[i.key()] && !have[i.key()] && i.SHA256 != "" {
			items = append(items, i)
			have[i.key()] = true
		}
	}
	var there []Item
	for k := range installed {
		if slices.Contains(names, k.name) && !have[k] {
			there = append(there, Item{Kind: Deb, Name: k.name, Version: k.version, Architecture: k.arch, For: []string{purpose}, Preinstalled: true})
		}
	}
	if err := locate(ctx, lists, there); err != nil {
		return nil, err
	}
	return append(items, there...), nil
}

// Lists is where this machine's apt keeps its indexes.
func Lists(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-config", "shell", "D", "Dir::State::lists/d").Output()
	dir := strings.Trim(strings.TrimPrefix(strings.TrimSpace(string(out)), "D="), "'")
	if err != nil || dir == "" {
		return "", fmt.Errorf("apt-config does not say where apt's indexes are: %q, %w", out, err)
	}
	return dir, nil
}

// key is what a package is looked up by.
type key struct{ name, version, arch string }

func (i Item) key() key { return key{i.Name, i.Version, i.Architecture} }

// indexName is how apt names the index of a component of a suite.
var indexName = regexp.MustCompile(`_dists_(.+)_([^_]+)_(?:binary-[^_]+_Packages|source_Sources)(\.[a-z0-9]+)?$`)

// locate fills in where in the archive the items are. It fails if the indexes have the
// version of one with another hash only. A package that is in no index is no error. An
// item without a hash gets the hash and the size of the index.
func locate(ctx context.Context, lists string, items []Item) error {
	if len(items) == 0 {
		return nil
	}
	wanted := map[key][]*Item{}
	for n := range items {
		wanted[items[n].key()] = append(wanted[items[n].key()], &items[n])
	}
	files, err := os.ReadDir(lists)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	other := map[*Item]string{}
	for _, f := range files {
		m := indexName.FindStringSubmatch(f.Name())
		if m == nil {
			continue
		}
		err := readIndex(ctx, filepath.Join(lists, f.Name()), func(e entry) {
			for _, i := range wanted[e.key] {
				for _, file := range e.files {
					if i.Kind == Source && file.name != i.file || i.Suite != "" {
						continue
					}
					if i.SHA256 == "" {
						i.SHA256, i.Size = file.sum, file.size
					}
					if i.SHA256 != file.sum || i.Size != file.size {
						other[i] = file.sum
						continue
					}
					i.Suite, i.Component = m[1], m[2]
				}
			}
		})
		if err != nil {
			return err
		}
	}
	for i, sum := range other {
		if i.Suite == "" {
			return fmt.Errorf("%s %s has SHA-256 %s, apt's index says %s", i.Name, i.Version, i.SHA256, sum)
		}
	}
	return nil
}

// entry is one package of an index.
type entry struct {
	key
	files []file
}

type file struct {
	name, sum string
	size      int64
}

// readIndex calls do for each package of an index.
func readIndex(ctx context.Context, name string, do func(entry)) error {
	in, err := open(ctx, name)
	if err != nil {
		return err
	}
	defer in.Close()
	source := strings.Contains(filepath.Base(name), "_source_Sources")
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	var stanza []byte
	flush := func() {
		if e := parse(stanza, source); e.name != "" {
			do(e)
		}
		stanza = stanza[:0]
	}
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			flush()
			continue
		}
		stanza = append(append(stanza, lines.Bytes()...), '\n')
	}
	flush()
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func parse(stanza []byte, source bool) entry {
	var e entry
	var f file
	eachField(stanza, func(key, value string) {
		switch key {
		case "Package":
			e.name = value
		case "Version":
			e.version = value
		case "Architecture":
			e.arch = value
		case "SHA256":
			f.sum = value
		case "Size":
			f.size, _ = strconv.ParseInt(value, 10, 64)
		case "Checksums-Sha256":
			for line := range strings.Lines(value) {
				if w := strings.Fields(line); len(w) == 3 {
					size, _ := strconv.ParseInt(w[1], 10, 64)
					e.files = append(e.files, file{w[2], w[0], size})
				}
			}
		}
	})
	if source {
		e.arch = "source"
	} else {
		e.files = []file{f}
	}
	return e
}

// eachField calls do for each field of a stanza, with its further lines.
func eachField(stanza []byte, do func(key, value string)) {
	for len(stanza) > 0 {
		end := 0
		for {
			n := bytes.IndexByte(stanza[end:], '\n')
			if n < 0 {
				end = len(stanza)
				break
			}
			end += n + 1
			if end == len(stanza) || stanza[end] != ' ' && stanza[end] != '\t' {
				break
			}
		}
		if k, v, ok := bytes.Cut(stanza[:end], []byte(":")); ok {
			do(string(k), strings.TrimSpace(string(v)))
		}
		stanza = stanza[end:]
	}
}

// open opens an index, which apt may keep packed.
func open(ctx context.Context, name string) (io.ReadCloser, error) {
	if filepath.Ext(name) == "" || strings.HasSuffix(name, "_Packages") || strings.HasSuffix(name, "_Sources") {
		return os.Open(name)
	}
	out, err := exec.CommandContext(ctx, "/usr/lib/apt/apt-helper", "cat-file", name).Output()
	if err != nil {
		return nil, fmt.Errorf("apt-helper cat-file %s: %w", name, err)
	}
	return io.NopCloser(bytes.NewReader(out)), nil
}

// hash is a file's SHA-256 and its size.
func hash(name string) (sum string, size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}
