// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/testbed/downloads"
)

func TestUsage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "record")
	for _, args := range [][]string{
		{}, {"other"}, {"debs"}, {"debs", "-o", out, "x.deb"}, {"debs", "-for", "x", "x.deb"}, {"debs", "-o", out, "-for", "x"},
		{"source", "-o", out, "-for", "x", "file"}, {"fetch", "-o", out, "-for", "x", "package"}, {"manifest", "more"}, {"versions", "-nothing"},
	} {
		if err := run(context.Background(), args); err == nil {
			t.Errorf("%q is carried out", args)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a record was written")
	}
}

// stubs puts shell scripts in front of the PATH.
func stubs(t *testing.T, scripts map[string]string) {
	t.Helper()
	bin := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// Packages are fetched, with one look at newer lists, and listed.
func TestFetch(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root's apt can refresh its lists")
	}
	dir, work := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(work, "tree", "DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	control := "Package: pkg\nVersion: 2\nArchitecture: amd64\nMaintainer: nobody <nobody@example>\nDescription: a test\n"
	if err := os.WriteFile(filepath.Join(work, "tree", "DEBIAN", "control"), []byte(control), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("dpkg-deb", "-b", filepath.Join(work, "tree"), filepath.Join(work, "pkg_2_amd64.deb")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("WORK", work)
	stubs(t, map[string]string{
		"apt-cache": `[ -e "$WORK/updated" ] && v=2 || v=1
			echo "Package: pkg"; echo "Version: $v"; echo "Architecture: amd64"; echo "SHA256: $(sha256sum "$WORK/pkg_2_amd64.deb" | cut -d' ' -f1)"`,
		"apt-get": `case "$*" in
			*update) touch "$WORK/updated" ;;
			*pkg=2) cp "$WORK/pkg_2_amd64.deb" . ;;
			*) echo "E: gone" >&2; exit 100 ;;
			esac`,
	})
	record := filepath.Join(dir, downloads.RecordFile)
	if err := run(context.Background(), []string{"fetch", "-o", record, "-for", "doubles", "-lists", work, "-dir", filepath.Join(dir, "deb"), "pkg"}); err != nil {
		t.Fatal(err)
	}
	items, err := downloads.Read(record)
	if err != nil || len(items) != 1 || items[0].Name != "pkg" || items[0].Version != "2" || items[0].For[0] != "doubles" {
		t.Errorf("%+v, %v", items, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "deb", "pkg_2_amd64.deb")); err != nil {
		t.Error(err)
	}
}

// The manifest of a build directory has its records.
func TestManifest(t *testing.T) {
	build := t.TempDir()
	if err := os.Mkdir(filepath.Join(build, "qemu"), 0o755); err != nil {
		t.Fatal(err)
	}
	item := downloads.Item{Kind: downloads.Deb, Name: "qemu-system-x86", Version: "1", SHA256: strings.Repeat("0a", 32), Size: 1, For: []string{"qemu"}}
	if err := downloads.WriteRecord(filepath.Join(build, "qemu", downloads.RecordFile), []downloads.Item{item}); err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), []string{"versions", "-build", build}); err == nil || !strings.Contains(err.Error(), "make setup") {
		t.Errorf("no manifest: %v", err)
	}
	if err := run(context.Background(), []string{"manifest", "-build", build}); err != nil {
		t.Fatal(err)
	}
	items, err := downloads.Read(filepath.Join(build, downloads.ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, i := range items {
		found[i.Name] = true
	}
	if !found["qemu-system-x86"] {
		t.Errorf("%v", found)
	}
	if err := run(context.Background(), []string{"versions", "-build", build}); err != nil {
		t.Error(err)
	}
}
