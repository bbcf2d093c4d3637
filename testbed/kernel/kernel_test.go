// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurdma/gpurdma/testbed/apt"
	"github.com/gpurdma/gpurdma/testbed/arch"
	"github.com/gpurdma/gpurdma/testbed/layout"
)

// offers is what apt offers: the candidate of a name first.
type offers map[string][]apt.Package

func (a offers) Names(_ context.Context, prefix string) ([]string, error) {
	var names []string
	for name := range a {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (a offers) Show(_ context.Context, name, version string) (apt.Package, error) {
	for _, p := range a[name] {
		if version == "" || p.Version == version {
			return p, nil
		}
	}
	return apt.Package{}, apt.ErrNotFound
}

func (a offers) add(name, version string, depends ...string) {
	a[name] = append(a[name], apt.Package{Name: name, Version: version, Depends: depends, SHA256: "sum-" + name})
}

// bookworm is an archive like Debian 12's.
func bookworm() offers {
	a := offers{}
	a.add("linux-image-amd64", "6.1.192-2", "linux-image-6.1.0-56-amd64")
	a.add("linux-image-6.1.0-56-amd64", "6.1.192-2", "kmod")
	a.add("linux-headers-6.1.0-56-amd64", "6.1.192-2", "linux-headers-6.1.0-56-common", "linux-kbuild-6.1", "linux-compiler-gcc-12-x86")
	a.add("linux-headers-6.1.0-56-common", "6.1.192-2")
	a.add("linux-kbuild-6.1", "6.1.192-2")
	a.add("linux-source-6.1", "6.1.192-2")

	const v = "6.12.117-1~deb12u1"
	a.add("linux-image-6.12-amd64", v, "linux-image-6.12.117+deb12-amd64")
	a.add("linux-image-6.12.117+deb12-amd64", v)
	a.add("linux-headers-6.12.117+deb12-amd64", v, "linux-headers-6.12.117+deb12-common", "linux-image-6.12.117+deb12-amd64", "linux-kbuild-6.12.117+deb12")
	a.add("linux-headers-6.12.117+deb12-common", v)
	a.add("linux-kbuild-6.12.117+deb12", v)
	a.add("linux-source-6.12", v)
	return a
}

func TestResolve(t *testing.T) {
	for series, want := range map[string]struct{ release, version string }{
		"6.1":  {"6.1.0-56-amd64", "6.1.192-2"},
		"6.12": {"6.12.117+deb12-amd64", "6.12.117-1~deb12u1"},
	} {
		s, err := resolve(context.Background(), bookworm(), series)
		if err != nil {
			t.Errorf("%s: %v", series, err)
			continue
		}
		if s.Release != want.release || s.Image.Version != want.version {
			t.Errorf("%s: got %s %s, want %s %s", series, s.Release, s.Image.Version, want.release, want.version)
		}
		for _, p := range s.all() {
			if p.Version != want.version {
				t.Errorf("%s: %s has version %s", series, p.Name, p.Version)
			}
		}
		if len(s.all()) != 5 {
			t.Errorf("%s: %d packages, want 5", series, len(s.all()))
		}
	}
}

// On a newer Debian the plain meta-package follows another series.
func TestResolveSeriesChecked(t *testing.T) {
	a := bookworm()
	delete(a, "linux-image-6.12-amd64")
	_, err := resolve(context.Background(), a, "6.12")
	if !errors.Is(err, apt.ErrNotFound) || !strings.Contains(err.Error(), "linux-image-amd64 6.1.192-2 depends on linux-image-6.1.0-56-amd64") {
		t.Errorf("got %v, want ErrNotFound that says what the meta-package follows", err)
	}
	a.add("linux-image-6.12-amd64", "1", "linux-image-6.1.0-1-amd64")
	if _, err := resolve(context.Background(), a, "6.12"); !errors.Is(err, apt.ErrNotFound) {
		t.Errorf("6.1 must not be taken for 6.12: %v", err)
	}
}

func TestResolveVersions(t *testing.T) {
	// An older source that is still offered is no problem, if that of the
	// image's version is there too.
	a := bookworm()
	a["linux-source-6.1"] = append([]apt.Package{{Name: "linux-source-6.1", Version: "6.1.200-1"}}, a["linux-source-6.1"]...)
	if s, err := resolve(context.Background(), a, "6.1"); err != nil || s.Source.Version != "6.1.192-2" {
		t.Errorf("got %s, %v; want the image's version", s.Source.Version, err)
	}
	for _, missing := range []string{"linux-source-6.1", "linux-headers-6.1.0-56-amd64", "linux-kbuild-6.1"} {
		a := bookworm()
		a[missing] = []apt.Package{{Name: missing, Version: "6.1.190-1"}}
		_, err := resolve(context.Background(), a, "6.1")
		if err == nil {
			t.Errorf("%s of another version: no error", missing)
			continue
		}
		for _, part := range []string{missing, "6.1.192-2", "offers 6.1.190-1", "apt-get update"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s of another version: the error lacks %q: %v", missing, part, err)
			}
		}
	}
}

// Where the newest image lacks a package of its version, the newest that lacks none
// is found, and nothing but an image for every machine.
func TestResolveOlder(t *testing.T) {
	a := bookworm()
	add := func(release, version string) {
		a.add("linux-image-"+release+"-amd64", version)
		a.add("linux-headers-"+release+"-amd64", version, "linux-headers-"+release+"-common", "linux-kbuild-6.1")
		a.add("linux-headers-"+release+"-common", version)
		a.add("linux-source-6.1", version)
	}
	add("6.1.0-9", "6.1.27-1")
	add("6.1.0-50", "6.1.176-1")
	add("6.1.0-47", "6.1.170-3")
	a.add("linux-image-6.1.0-50-cloud-amd64", "6.1.176-1")
	a.add("linux-image-6.1.0-57-amd64-unsigned", "6.1.192-3")
	kbuild := func(versions ...string) {
		delete(a, "linux-kbuild-6.1")
		for _, v := range versions {
			a.add("linux-kbuild-6.1", v)
		}
	}
	for _, c := range []struct {
		kbuild []string
		want   string
	}{
		{[]string{"6.1.192-3", "6.1.27-1", "6.1.176-1", "6.1.170-3"}, "6.1.0-50-amd64"},
		{[]string{"6.1.192-3", "6.1.170-3", "6.1.27-1"}, "6.1.0-47-amd64"},
		{[]string{"6.1.192-3", "6.1.27-1"}, "6.1.0-9-amd64"},
		{[]string{"6.1.192-2", "6.1.176-1"}, "6.1.0-56-amd64"},
	} {
		kbuild(c.kbuild...)
		s, err := resolveOlder(context.Background(), a, "6.1")
		if err != nil || s.Release != c.want {
			t.Errorf("kbuild %v: got %s, %v; want %s", c.kbuild, s.Release, err, c.want)
		}
	}
	kbuild("6.1.192-3")
	if s, err := resolveOlder(context.Background(), a, "6.1"); !errors.Is(err, apt.ErrNotFound) {
		t.Errorf("no image is complete: got %s, %v; want ErrNotFound", s.Release, err)
	}
}

func TestOpen(t *testing.T) {
	tree := layout.Tree{Build: t.TempDir(), Arch: arch.Default}
	if _, err := Open(tree, "5.5"); err == nil || errors.Is(err, ErrNotFetched) {
		t.Errorf("an unknown series: got %v", err)
	}
	if _, err := Open(tree, "6.1"); !errors.Is(err, ErrNotFetched) {
		t.Errorf("an empty cache: got %v", err)
	}
	dir := tree.Kernel("6.1")
	files := map[string]string{"release": "6.1.0-56-amd64\n", "version": "6.1.192-2\n", "inputs": "layout 0\n"}
	put := func() {
		for name, text := range files {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	put()
	if _, err := Open(tree, "6.1"); !errors.Is(err, ErrNotFetched) {
		t.Errorf("a cache of another layout: got %v", err)
	}
	files["inputs"] = layoutLine() + "\n"
	put()
	k, err := Open(tree, "6.1")
	if err != nil || k.Release != "6.1.0-56-amd64" || k.Version != "6.1.192-2" {
		t.Errorf("got %+v, %v", k, err)
	}
	if want := filepath.Join(dir, "image/boot/vmlinuz-6.1.0-56-amd64"); k.Image() != want {
		t.Errorf("Image() = %s, want %s", k.Image(), want)
	}
}

// The scripts that leave kernels say the layout in their own words.
func TestScriptsLeaveThisLayout(t *testing.T) {
	for _, script := range []string{"buildroot.sh", "kasan.sh"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "kernel", script))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `echo "`+layoutLine()+`" #`) {
			t.Errorf("kernel/%s does not leave %q", script, layoutLine())
		}
	}
}

func TestReplace(t *testing.T) {
	base := t.TempDir()
	mk := func(name, content string) string {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cache := filepath.Join(base, "cache")
	for i, content := range []string{"first", "second"} {
		stage := mk("stage"+content, content)
		if err := replace(stage, cache); err != nil {
			t.Fatalf("replacing, %d: %v", i, err)
		}
		if b, err := os.ReadFile(filepath.Join(cache, "f")); err != nil || string(b) != content {
			t.Errorf("the cache has %q, %v; want %q", b, err, content)
		}
	}
}

func TestRelocateHeaders(t *testing.T) {
	dir := t.TempDir()
	const rel = "6.1.0-56-amd64"
	kdir := filepath.Join(dir, "usr/src/linux-headers-"+rel)
	mods := filepath.Join(dir, "lib/modules", rel)
	for _, d := range []string{kdir, mods} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	makefile := filepath.Join(kdir, "Makefile")
	if err := os.WriteFile(makefile, []byte("include /usr/src/linux-headers-6.1.0-56-common/Makefile\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/src/linux-headers-"+rel, filepath.Join(mods, "build")); err != nil {
		t.Fatal(err)
	}
	if err := relocateHeaders(dir, rel); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(makefile)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b), "include $(dir $(realpath $(lastword $(MAKEFILE_LIST))))../linux-headers-6.1.0-56-common/Makefile\n"; got != want {
		t.Errorf("Makefile:\n%swant\n%s", got, want)
	}
	for _, link := range []string{filepath.Join(mods, "build"), filepath.Join(dir, "kdir")} {
		if to, err := filepath.EvalSymlinks(link); err != nil || to != kdir {
			t.Errorf("%s leads to %s, %v; want %s", link, to, err, kdir)
		}
	}
	// A Makefile of another form is not patched blindly.
	if err := os.WriteFile(makefile, []byte("include ../Makefile\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := relocateHeaders(dir, rel); err == nil {
		t.Error("an unexpected Makefile: no error")
	}
}
