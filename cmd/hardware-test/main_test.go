// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gpurdma/gpurdma/internal/testenv"
)

var built struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	defer func() { _ = os.RemoveAll(built.dir) }()
	testenv.Main(m)
}

// programs builds this program and those that it runs, but for the runtimes' tests.
func programs(t *testing.T) string {
	t.Helper()
	if testenv.InVM() {
		t.Skip("compiles: runs on the host")
	}
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "hardware-test-bin-"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-ldflags", "-extldflags=-Wl,-z,lazy", "-o", built.dir+"/", ".", "../p2pcheck", "../../p2p/testdata/machines/convert")
		if out, err := build.CombinedOutput(); err != nil {
			built.err = errors.New(string(out))
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// pack writes the files below root as a snapshot.
func pack(t *testing.T, root, archive string) {
	t.Helper()
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	compressed := gzip.NewWriter(f)
	w := tar.NewWriter(compressed)
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		if rel == "dev/kmsg" { // it is the file that could not be read
			return nil
		}
		h := tar.Header{Name: rel, Typeflag: tar.TypeReg, Mode: 0o600, Format: tar.FormatPAX}
		if d.Type() == fs.ModeSymlink {
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = os.Readlink(name); err != nil {
				return err
			}
			if filepath.IsAbs(h.Linkname) {
				if h.Linkname, err = filepath.Rel(filepath.Dir(name), h.Linkname); err != nil {
					return err
				}
			}
			return w.WriteHeader(&h)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		h.Size = int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	unread := tar.Header{Name: "dev/kmsg", Typeflag: tar.TypeReg, Mode: 0o600, Format: tar.FormatPAX, PAXRecords: map[string]string{unreadableKey: "1"}}
	if err := errors.Join(err, w.WriteHeader(&unread), w.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
}

// script writes a program of the shell.
func script(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func has(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), w) {
			t.Errorf("the text does not have %q:\n%s", w, text)
		}
	}
}
