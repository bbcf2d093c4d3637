// SPDX-License-Identifier: Apache-2.0

package downloads

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pack makes a package, and returns its file.
func pack(t *testing.T, dir, name, version string) string {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip(err)
	}
	tree := t.TempDir()
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: nobody <nobody@example>\nDescription: a test\n more of it\n", name, version)
	if err := os.MkdirAll(filepath.Join(tree, "DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "DEBIAN", "control"), []byte(control), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name+"_"+strings.ReplaceAll(version, ":", "%3a")+"_amd64.deb")
	if out, err := exec.Command("dpkg-deb", "-b", tree, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

func stanza(name, version, arch, sum string, size int64) string {
	return fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\nDescription: prose\n SHA256: not this one\nSHA256: %s\nSize: %d\n\n", name, version, arch, sum, size)
}

func index(t *testing.T, lists, name, text string) {
	t.Helper()
	f, err := os.Create(filepath.Join(lists, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !strings.HasSuffix(name, ".gz") {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

const (
	trixie   = "mirror.example_debian_dists_trixie_main_binary-amd64_Packages"
	security = "mirror.example_security_dists_bookworm-security_contrib_binary-amd64_Packages"
)

// A package's versions, hash and size come from the file, its place from the index that
// has this very file.
func TestDebs(t *testing.T) {
	ctx, dir, lists := context.Background(), t.TempDir(), t.TempDir()
	a, b, none := pack(t, dir, "a", "1:2.3-1"), pack(t, dir, "b", "7"), pack(t, dir, "none", "1")
	sumA, sizeA, err := hash(a)
	if err != nil {
		t.Fatal(err)
	}
	sumB, sizeB, err := hash(b)
	if err != nil {
		t.Fatal(err)
	}
	index(t, lists, trixie, stanza("a", "1:2.3-0", "amd64", sums[0], 1)+stanza("a", "1:2.3-1", "arm64", sums[0], 1)+stanza("a", "1:2.3-1", "amd64", sumA, sizeA)+"\n")
	// Another archive may have made other files of the same version.
	index(t, lists, "aaa.example_debian_dists_other_main_binary-amd64_Packages", stanza("b", "7", "amd64", sums[0], sizeB))
	index(t, lists, security, strings.TrimSuffix(stanza("b", "7", "amd64", sumB, sizeB), "\n\n"))
	index(t, lists, "mirror.example_debian_dists_trixie_InRelease", stanza("none", "1", "amd64", sums[0], 1))
	items, err := Debs(ctx, lists, "root 7.2", []string{a, b, none})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []Item{
		{Kind: Deb, Name: "a", Version: "1:2.3-1", SHA256: sumA, Size: sizeA, Suite: "trixie", Component: "main"},
		{Kind: Deb, Name: "b", Version: "7", SHA256: sumB, Size: sizeB, Suite: "bookworm-security", Component: "contrib"},
		{Kind: Deb, Name: "none", Version: "1"},
	} {
		got := items[n]
		if n == 2 {
			want.SHA256, want.Size = got.SHA256, got.Size
		}
		if got.Name != want.Name || got.Version != want.Version || got.Architecture != "amd64" || got.SHA256 != want.SHA256 || got.Size != want.Size ||
			got.Suite != want.Suite || got.Component != want.Component || got.For[0] != "root 7.2" || got.check() != nil {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}

	// The version is known, and only with another hash.
	index(t, lists, security, stanza("b", "7", "amd64", sums[1], sizeB))
	if _, err := Debs(ctx, lists, "x", []string{b}); err == nil || !strings.Contains(err.Error(), "b 7 has SHA-256 "+sumB) {
		t.Errorf("another hash: %v", err)
	}
	if _, err := Debs(ctx, lists, "x", []string{filepath.Join(lists, trixie)}); err == nil {
		t.Error("no package: no error")
	}
}

// The index is found if apt keeps it packed, as with Acquire::GzipIndexes.
func TestPackedIndex(t *testing.T) {
	if _, err := os.Stat("/usr/lib/apt/apt-helper"); err != nil {
		t.Skip(err)
	}
	dir, lists := t.TempDir(), t.TempDir()
	a := pack(t, dir, "a", "1")
	sum, size, err := hash(a)
	if err != nil {
		t.Fatal(err)
	}
	index(t, lists, trixie+".gz", stanza("a", "1", "amd64", sum, size))
	if items, err := Debs(context.Background(), lists, "x", []string{a}); err != nil || items[0].Suite != "trixie" {
		t.Errorf("%+v, %v", items, err)
	}
}

func TestSourceFile(t *testing.T) {
	dir, lists := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "rdma-core_56.1.orig.tar.gz")
	if err := os.WriteFile(file, []byte("source"), 0o644); err != nil {
		t.Fatal(err)
	}
	sum, size, err := hash(file)
	if err != nil {
		t.Fatal(err)
	}
	text := "Package: rdma-core\nFormat: 3.0 (quilt)\nVersion: 56.1-1\nChecksums-Sha256:\n %s 3 rdma-core_56.1-1.dsc\n %s %d rdma-core_56.1.orig.tar.gz\nDirectory: pool\n\n"
	name := "mirror.example_debian_dists_trixie_main_source_Sources"
	index(t, lists, name, fmt.Sprintf(text, sums[0], sum, size))
	i, err := SourceFile(context.Background(), lists, "rxe-provider 56", "rdma-core", "56.1-1", file)
	if err != nil || i.Suite != "trixie" || i.Component != "main" || i.SHA256 != sum || i.Size != size || i.Kind != Source || i.Version != "56.1-1" || i.check() != nil {
		t.Errorf("%+v, %v", i, err)
	}
	index(t, lists, name, fmt.Sprintf(text, sum, sums[0], size))
	if _, err := SourceFile(context.Background(), lists, "x", "rdma-core", "56.1-1", file); err == nil {
		t.Error("another hash: no error")
	}
}

// A downloaded package keeps its hash while it is installed. For a package that the machine
// had before, the hash is that of apt's indexes.
func TestHost(t *testing.T) {
	bin, lists := t.TempDir(), t.TempDir()
	installed := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, "dpkg-query"), []byte("#!/bin/sh\ncat <<'E'\n"+strings.Join(lines, "\n")+"\nE\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	host := func(old []Item, debs ...string) map[string]Item {
		t.Helper()
		items, err := Host(context.Background(), lists, "host", old, debs, []string{"make", "gcc", "new", "removed"})
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]Item{}
		for _, i := range items {
			by[i.Name] = i
		}
		if len(by) != len(items) {
			t.Errorf("a package twice: %+v", items)
		}
		return by
	}
	index(t, lists, trixie, stanza("make", "4.3", "amd64", sums[0], 10)+stanza("new", "1", "amd64", sums[1], 20)+stanza("removed", "1", "amd64", sums[1], 20))
	installed("ii |make|4.3|amd64", "ii |gcc|12|amd64", "rc |removed|1|amd64", "ii |unasked|1|amd64")
	first := host(nil)
	if m := first["make"]; len(first) != 2 || !m.Preinstalled || m.SHA256 != sums[0] || m.Size != 10 || m.Suite != "trixie" {
		t.Errorf("%+v", first)
	}
	if g := first["gcc"]; !g.Preinstalled || g.SHA256 != "" || g.check() != nil {
		t.Errorf("%+v", g)
	}

	// Set-up installs a package and a library that it needs, and the indexes lose all packages.
	dir := t.TempDir()
	deb, lib := pack(t, dir, "new", "2"), pack(t, dir, "libnew", "2")
	index(t, lists, trixie, "")
	installed("ii |make|4.3|amd64", "ii |gcc|12|amd64", "ii |new|2|amd64", "ii |libnew|2|amd64")
	second := host([]Item{first["make"], first["gcc"]}, deb, lib)
	if n := second["new"]; len(second) != 4 || n.Preinstalled || n.check() != nil || second["libnew"].Preinstalled || second["make"].SHA256 != sums[0] {
		t.Errorf("%+v", second)
	}
	// Without a download the items stay. For make, which was upgraded outside of set-up, there
	// is an item of the new version.
	installed("ii |make|4.4|amd64", "ii |gcc|12|amd64", "ii |new|2|amd64", "ii |libnew|2|amd64")
	third := host([]Item{second["make"], second["gcc"], second["new"], second["libnew"]})
	if third["new"].SHA256 != second["new"].SHA256 || third["new"].Preinstalled || third["libnew"].SHA256 == "" || third["make"].Version != "4.4" || third["make"].SHA256 != "" || !third["make"].Preinstalled {
		t.Errorf("%+v", third)
	}
}
