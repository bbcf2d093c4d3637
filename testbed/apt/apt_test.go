// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const stanzas = `Package: linux-image-6.12-amd64
Source: linux-signed-6.12-amd64 (6.12.117+1~deb12u1)
Version: 6.12.117-1~deb12u1
Architecture: amd64
Depends: linux-image-6.12.117+deb12-amd64 (= 6.12.117-1~deb12u1)
Description: Linux 6.12 for 64-bit PCs (meta-package)
 Depends: this is prose and not a field
 .
SHA256: 0123

Package: linux-headers-6.12.117+deb12-amd64
Version: 6.12.117-1~deb12u1
Architecture: amd64
Depends: linux-base, linux-headers-6.12.117+deb12-common (= 6.12.117-1~deb12u1), linux-image-6.12.117+deb12-amd64 (= 1) | linux-image-6.12.117+deb12-amd64-unsigned (= 1), linux-kbuild-6.12.117+deb12, gcc-12:amd64
SHA256: 4567
`

func TestParse(t *testing.T) {
	got := Parse(stanzas)
	want := []Package{
		{Name: "linux-image-6.12-amd64", Version: "6.12.117-1~deb12u1", Arch: "amd64", SHA256: "0123",
			Depends: []string{"linux-image-6.12.117+deb12-amd64"}},
		{Name: "linux-headers-6.12.117+deb12-amd64", Version: "6.12.117-1~deb12u1", Arch: "amd64", SHA256: "4567",
			Depends: []string{"linux-base", "linux-headers-6.12.117+deb12-common", "linux-image-6.12.117+deb12-amd64",
				"linux-image-6.12.117+deb12-amd64-unsigned", "linux-kbuild-6.12.117+deb12", "gcc-12"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, junk := range []string{"", "\n\n\n", "N: no such package\n", "Package: half\n"} {
		if got := Parse(junk); len(got) != 0 {
			t.Errorf("Parse(%q) = %+v, want nothing", junk, got)
		}
	}
}

// fake answers commands from a function instead of running them.
func fake(f func(dir string, args []string) (string, string, error)) *Apt {
	return &Apt{command: func(_ context.Context, dir, name string, args ...string) ([]byte, []byte, error) {
		out, stderr, err := f(dir, append([]string{name}, args...))
		return []byte(out), []byte(stderr), err
	}}
}

func TestShow(t *testing.T) {
	a := fake(func(_ string, args []string) (string, string, error) {
		if strings.HasPrefix(args[len(args)-1], "linux-image-6.12-amd64") {
			return stanzas, "", nil
		}
		return "", "E: No packages found\n", errors.New("exit status 100")
	})
	ctx := context.Background()
	p, err := a.Show(ctx, "linux-image-6.12-amd64", "")
	if err != nil || p.Version != "6.12.117-1~deb12u1" {
		t.Errorf("got %+v, %v", p, err)
	}
	if _, err := a.Show(ctx, "linux-image-6.12-amd64", "6.12.1-1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("another version: got %v, want ErrNotFound", err)
	}
	if _, err := a.Show(ctx, "linux-image-5.5-amd64", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown package: got %v, want ErrNotFound", err)
	}
	broken := fake(func(string, []string) (string, string, error) {
		return "", "E: The package lists or status file could not be parsed", errors.New("exit status 100")
	})
	if _, err := broken.Show(ctx, "x", ""); err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "could not be parsed") {
		t.Errorf("apt that fails: got %v", err)
	}
}

func TestNames(t *testing.T) {
	a := fake(func(_ string, args []string) (string, string, error) {
		if slices.Equal(args[len(args)-2:], []string{"pkgnames", "linux-image-6.1."}) {
			return "linux-image-6.1.0-50-amd64\nlinux-image-6.1.0-9-amd64\n", "", nil
		}
		return "", "E: broken", errors.New("exit status 100")
	})
	names, err := a.Names(context.Background(), "linux-image-6.1.")
	if want := []string{"linux-image-6.1.0-50-amd64", "linux-image-6.1.0-9-amd64"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %v, %v; want %v", names, err, want)
	}
	if _, err := a.Names(context.Background(), "x"); err == nil || !strings.Contains(err.Error(), "E: broken") {
		t.Errorf("apt that fails: got %v", err)
	}
}

func TestDownload(t *testing.T) {
	const content = "a package"
	sum := sha256.Sum256([]byte(content))
	p := Package{Name: "pkg", Version: "1:2.3~x", Arch: "amd64", SHA256: hex.EncodeToString(sum[:])}
	ctx := context.Background()
	write := func(text string) func(string, []string) (string, string, error) {
		return func(dir string, args []string) (string, string, error) {
			if got := args[len(args)-1]; got != "pkg=1:2.3~x" {
				return "", "", fmt.Errorf("asked for %s", got)
			}
			return "", "", os.WriteFile(filepath.Join(dir, "pkg_1%3a2.3~x_amd64.deb"), []byte(text), 0o644)
		}
	}
	dir := t.TempDir()
	leftovers := func() []string {
		names, _ := filepath.Glob(filepath.Join(dir, "*"))
		return names
	}

	// An interrupted or refused download leaves nothing behind.
	refused := fake(func(dir string, _ []string) (string, string, error) {
		os.WriteFile(filepath.Join(dir, "pkg.deb.partial"), []byte("a pa"), 0o644)
		return "", "E: 404  Not Found", errors.New("exit status 100")
	})
	if _, err := refused.Download(ctx, dir, p); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("refused download: got %v", err)
	}
	if _, err := fake(write("wrong")).Download(ctx, dir, p); err == nil || !strings.Contains(err.Error(), "apt-get update") {
		t.Errorf("wrong content: got %v, want advice to update", err)
	}
	if l := leftovers(); len(l) != 0 {
		t.Fatalf("left behind: %v", l)
	}

	file, err := fake(write(content)).Download(ctx, dir, p)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != content {
		t.Errorf("got %q, %v", b, err)
	}
	never := fake(func(string, []string) (string, string, error) { return "", "", errors.New("downloaded again") })
	if again, err := never.Download(ctx, dir, p); err != nil || again != file {
		t.Errorf("second download: got %q, %v", again, err)
	}
	// A damaged file is not taken for the package.
	if err := os.WriteFile(file, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := fake(write(content)).Download(ctx, dir, p); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(file); string(b) != content {
		t.Errorf("a damaged download was kept: %q", b)
	}
}

// Root's apt downloads as another user, into a directory that this one may write to.
func TestDownloadSandboxed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: apt downloads as who runs it")
	}
	u, err := user.Lookup("_apt")
	if err != nil {
		t.Skip(err)
	}
	asked := false
	a := fake(func(dir string, args []string) (string, string, error) {
		asked = true
		fi, err := os.Stat(dir)
		if err != nil {
			return "", "", err
		}
		if owner := strconv.Itoa(int(fi.Sys().(*syscall.Stat_t).Uid)); owner != u.Uid || fi.Mode().Perm() != 0o755 {
			t.Errorf("the directory is user %s's, %v; _apt is %s", owner, fi.Mode(), u.Uid)
		}
		if strings.Contains(strings.Join(args, " "), "Sandbox") {
			t.Errorf("%q", args)
		}
		return "", "", os.WriteFile(filepath.Join(dir, "pkg_1_amd64.deb"), []byte("x"), 0o644)
	})
	sum := sha256.Sum256([]byte("x"))
	if _, err := a.Download(context.Background(), t.TempDir(), Package{Name: "pkg", Version: "1", Arch: "amd64", SHA256: hex.EncodeToString(sum[:])}); err != nil || !asked {
		t.Error(asked, err)
	}
}

// What apt refuses for its date comes with what to do.
func TestAdvice(t *testing.T) {
	for stderr, want := range map[string]string{
		"E: Release file for http://mirror.example/debian/dists/sid/InRelease is expired (invalid since 21d 2h 24min 37s). Updates for this repository will not be applied.": "another mirror",
		"E: Release file for http://mirror.example/debian/dists/sid/InRelease is not valid yet (invalid for another 2h). Updates for this repository will not be applied.":   "clock",
		"E: Could not resolve": "",
	} {
		got := advice([]byte(stderr))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q", stderr, got)
		}
	}
}
