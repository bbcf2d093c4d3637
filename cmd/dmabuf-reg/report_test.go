// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A report that cannot be written is refused before any work; one that came to
// nothing leaves the file of an earlier run as it was, and no other file.
func TestReportFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := newReportFile(filepath.Join(dir, "missing", "r.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
	path := filepath.Join(dir, "r.json")
	if err := os.WriteFile(path, []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := newReportFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.write(nil, errors.New("no NIC")); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "earlier" || len(left) != 1 {
		t.Errorf("%q, %v, %d files", data, err, len(left))
	}
	if err := (*reportFile)(nil).write(&verifyResult{}, nil); err != nil {
		t.Errorf("without --report: %v", err)
	}
}

// udev makes names of addresses; a report must not carry them.
func TestAnonymous(t *testing.T) {
	for name, want := range map[string]string{
		"mlx5_0": "mlx5_0", "rocep1s0f0": "rocep1s0f0", "enx0a1b2c3d4e5f": "enx-", "ibx506b4b0300f3b8a2": "ibx-", "": "",
	} {
		if got := anonymous(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
}
