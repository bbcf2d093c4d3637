// SPDX-License-Identifier: Apache-2.0

package downloads

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var sums = []string{strings.Repeat("0a", 32), strings.Repeat("1b", 32), strings.Repeat("2c", 32)}

func deb(name, version string, sum int, purpose ...string) Item {
	return Item{Kind: Deb, Name: name, Version: version, Architecture: "amd64", SHA256: sums[sum], Size: 100, Suite: "trixie", Component: "main", For: purpose}
}

func record(t *testing.T, build, dir string, items ...Item) string {
	t.Helper()
	file := filepath.Join(build, dir, RecordFile)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteRecord(file, items); err != nil {
		t.Fatal(err)
	}
	return file
}

// manifest writes the manifest of a build directory without Go modules, and reads it.
func manifest(t *testing.T, build string) []Item {
	t.Helper()
	if err := WriteManifest(t.TempDir(), build); err != nil {
		t.Fatal(err)
	}
	items, err := Read(filepath.Join(build, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func names(items []Item) (out []string) {
	for _, i := range items {
		out = append(out, i.Name+" "+i.Version+" for "+strings.Join(i.For, ", "))
	}
	return out
}

// The manifest has each download of the records once, and loses it with the last record of it.
func TestManifest(t *testing.T) {
	build := filepath.Join(t.TempDir(), "build")
	if got := manifest(t, build); len(got) != 0 {
		t.Errorf("nothing is set up: %v", names(got))
	}
	record(t, build, "kernels/6.1", deb("linux-image", "6.1.192-2", 0, "kernel 6.1"))
	record(t, build, "qemu", deb("qemu-system-x86", "1:10", 1, "qemu"), deb("libc6", "2.41", 2, "qemu"))
	record(t, build, "roots/7.2", deb("libc6", "2.41", 2, "root 7.2"))
	record(t, build, "rxe-provider/56", deb("rdma-core", "56.1-1", 1, "rxe-provider 56"))
	record(t, build, "runtimes", deb("libze1", "1.8", 1, "doubles"))
	record(t, build, "host/base", deb("make", "4.3", 1, "host"))
	// Unfinished directories are left out.
	for _, dir := range []string{"kernels/stage-6.12-1", "roots/.stage-7.2.x", "rxe-provider/.work.x", ".qemu.x", "kernels/6.12/headers"} {
		record(t, build, dir, deb("unfinished", "1", 1, dir))
	}
	want := []string{"libc6 2.41 for qemu, root 7.2", "libze1 1.8 for doubles", "linux-image 6.1.192-2 for kernel 6.1", "make 4.3 for host",
		"qemu-system-x86 1:10 for qemu", "rdma-core 56.1-1 for rxe-provider 56"}
	if got := names(manifest(t, build)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if err := os.RemoveAll(filepath.Join(build, "qemu")); err != nil {
		t.Fatal(err)
	}
	want[0] = "libc6 2.41 for root 7.2"
	if got := names(manifest(t, build)); !slices.Equal(got, slices.Delete(want, 4, 5)) {
		t.Errorf("without QEMU: %q", got)
	}
}

// A manifest that is right is left alone. A wrong one is replaced by another file in one
// step, so that a reader never sees half of a manifest.
func TestManifestIsWrittenInOneStep(t *testing.T) {
	build := t.TempDir()
	record(t, build, "qemu", deb("a", "1", 0, "qemu"))
	file := filepath.Join(build, ManifestFile)
	manifest(t, build)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	manifest(t, build)
	if fi, err := os.Stat(file); err != nil || time.Since(fi.ModTime()) < time.Minute {
		t.Errorf("it was written again: %v", err)
	}
	record(t, build, "qemu", deb("a", "2", 1, "qemu"))
	manifest(t, build)
	before := make([]byte, 1<<16)
	n, _ := open.Read(before)
	if !bytes.Contains(before[:n], []byte(`"version": "1"`)) {
		t.Errorf("the old file was changed: %s", before[:n])
	}
	if entries, err := os.ReadDir(build); err != nil || len(entries) != 3 { // with qemu and the lock
		t.Errorf("left: %v, %v", entries, err)
	}
}

// The order in which things are found does not show.
func TestOrder(t *testing.T) {
	pre := deb("c", "1", 0, "host")
	pre.Preinstalled = true
	unknown := Item{Kind: Deb, Name: "b", Version: "1", Architecture: "amd64", For: []string{"host"}, Preinstalled: true}
	items := []Item{deb("b", "1", 0, "x"), deb("b", "1", 1, "y"), deb("b", "2", 0, "x"), deb("a", "9", 0, "z", "x"), deb("a", "9", 0, "y"),
		pre, deb("c", "1", 0, "qemu"), {Kind: Module, Name: "m", Version: "v1", SHA256: sums[0], Size: 1, For: []string{"go.mod"}},
		{Kind: Deb, Name: "d", Version: "1", Architecture: "amd64", For: []string{"host"}, Preinstalled: true}, deb("d", "1", 2, "root 7.2")}
	want := merge(items)
	for range 20 {
		rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		if got := merge(items); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	}
	if got, want := names(want), []string{"a 9 for x, y, z", "b 1 for x", "b 1 for y", "b 2 for x", "c 1 for host, qemu", "d 1 for host, root 7.2", "m v1 for go.mod"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	// One that was downloaded for one part, and was there for another, was downloaded.
	for _, i := range want {
		if i.Preinstalled || i.SHA256 == "" {
			t.Errorf("%+v", i)
		}
	}
	if got := merge([]Item{unknown, unknown}); len(got) != 1 || !got[0].Preinstalled {
		t.Errorf("%+v", got)
	}
}

// A download without a hash is no entry, and a list that is damaged is none.
func TestRefused(t *testing.T) {
	build := t.TempDir()
	for _, c := range []struct {
		what string
		item Item
	}{
		{"no hash", Item{Kind: Deb, Name: "a", Version: "1", Size: 1, For: []string{"x"}}},
		{"half a hash", Item{Kind: Deb, Name: "a", Version: "1", Size: 1, SHA256: sums[0][:32], For: []string{"x"}}},
		{"no hex", Item{Kind: Deb, Name: "a", Version: "1", Size: 1, SHA256: strings.Repeat("x", 64), For: []string{"x"}}},
		{"no size", Item{Kind: Deb, Name: "a", Version: "1", SHA256: sums[0], For: []string{"x"}}},
		{"no version", Item{Kind: Deb, Name: "a", Size: 1, SHA256: sums[0], For: []string{"x"}}},
		{"no purpose", Item{Kind: Deb, Name: "a", Version: "1", Size: 1, SHA256: sums[0]}},
	} {
		if err := WriteRecord(filepath.Join(build, RecordFile), []Item{c.item}); err == nil {
			t.Errorf("%s: no error", c.what)
		}
	}
	if entries, _ := os.ReadDir(build); len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
	file := record(t, build, "qemu", deb("a", "1", 0, "qemu"))
	for _, text := range []string{"", "{", `{"downloads": [{"kind": "deb", "name": "a", "version": "1", "size": 1, "for": ["x"]}]}`} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := WriteManifest(t.TempDir(), build); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestPrint(t *testing.T) {
	build := t.TempDir()
	var out bytes.Buffer
	if err := Print(&out, build); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "make setup") {
		t.Errorf("no manifest: %v", err)
	}
	manifest(t, build)
	if err := Print(&out, build); !errors.Is(err, ErrNone) {
		t.Errorf("nothing in it: %v", err)
	}
	pre := deb("make", "4.3", 1, "host")
	pre.Preinstalled = true
	record(t, build, "host/base", pre, Item{Kind: Deb, Name: "gcc", Version: "12", Architecture: "amd64", For: []string{"host"}, Preinstalled: true})
	record(t, build, "qemu", deb("qemu-system-x86", "1:10", 0, "qemu"))
	manifest(t, build)
	if err := Print(&out, build); err != nil {
		t.Fatal(err)
	}
	want := `
KIND  NAME             VERSION  ARCH   FROM           BYTES  SHA-256                                                           FOR
deb   gcc              12       amd64  - *            0      -                                                                 host
deb   make             4.3      amd64  trixie/main *  100    ` + sums[1] + `  host
deb   qemu-system-x86  1:10     amd64  trixie/main    100    ` + sums[0] + `  qemu
1 downloads, 0.0 MB; * marks 2 that the machine had before
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got%s\nwant%s", got, want)
	}
}
