// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// directPairs are those that the command calls direct.
func directPairs(t *testing.T, root string) map[string]bool {
	t.Helper()
	var out, stderr bytes.Buffer
	a := &app{stdout: &out, stderr: &stderr}
	status := a.run([]string{"--root", root, "--json"})
	var d struct{ Result *checkResult }
	if err := json.Unmarshal(out.Bytes(), &d); err != nil || status < cli.ExitOK || status > cli.ExitUnavailable {
		t.Fatalf("status %d, %v: %s%s", status, err, &out, &stderr)
	}
	pairs := map[string]bool{}
	if d.Result == nil {
		return pairs
	}
	for _, p := range d.Result.Pairs {
		if p.Outcome == "direct" {
			pairs[p.GPU+" "+p.NIC] = true
		}
	}
	return pairs
}

// What cannot be read never makes a pair direct: each file of a machine is
// taken away, emptied, and filled with nonsense, one at a time.
func TestMangledTree(t *testing.T) {
	root := machineTree(server, "0x1d").Write(t)
	whole := directPairs(t, root)
	if len(whole) != 1 {
		t.Fatal(whole)
	}
	files := 0
	mangle := func(name string, text []byte, kind string) {
		if text == nil {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		for pair := range directPairs(t, root) {
			if !whole[pair] {
				t.Errorf("%s: with %s %s, %s is direct", t.Name(), name, kind, pair)
			}
		}
	}
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		mangle(name, nil, "gone")
		mangle(name, []byte{}, "empty")
		mangle(name, []byte("\xff\xfe nonsense\n\x00"), "nonsense")
		return os.WriteFile(name, text, 0o600)
	})
	if err != nil || files < 50 {
		t.Errorf("%d files, %v", files, err)
	}
}
