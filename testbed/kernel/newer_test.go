// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/testbed/apt"
	"github.com/gpurdma/gpurdma/testbed/arch"
	"github.com/gpurdma/gpurdma/testbed/layout"
)

// tree is a checkout whose kernel/buildroot.sh is the given script.
func tree(t *testing.T, script string) layout.Tree {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, buildroot), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	folder(t, root, "7.2")
	return layout.Tree{Root: root, Build: filepath.Join(root, "build"), Arch: arch.Default}
}

// folder makes the folder of a series.
func folder(t *testing.T, root, series string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, patches, series), 0o755); err != nil {
		t.Fatal(err)
	}
}

// A newer series is a new folder, and what is named 7.2 is meant for it, too.
func TestNewerSeries(t *testing.T) {
	tr := tree(t, "exit 1")
	if _, err := Open(tr, "7.3"); err == nil || errors.Is(err, ErrNotFetched) || !strings.Contains(err.Error(), "6.12, 6.1, 7.2; a newer one is a folder in "+patches) {
		t.Errorf("no folder: got %v", err)
	}
	folder(t, tr.Root, "7.3")
	if _, err := Open(tr, "7.3"); !errors.Is(err, ErrNotFetched) {
		t.Errorf("a folder: got %v", err)
	}
	for _, c := range []struct {
		names, series string
		want          bool
	}{
		{"", "7.3", true}, {"7.2", "7.2", true}, {"7.2", "7.3", true}, {"7.2 6.12", "7.10", true}, {"7.9", "7.10", true}, {"7.2", "8.0", true},
		{"7.3", "7.2", false}, {"7.10", "7.9", false}, {"7.2", "6.12", false}, {"6.1", "6.12", false}, {"6.12 6.1", "7.3", false}, {"7.2 6.12", "6.1", false},
	} {
		if got := Meant(strings.Fields(c.names), c.series); got != c.want {
			t.Errorf("named %q, series %s: %v", c.names, c.series, got)
		}
	}
}

// Debian 12's own series are not booted for another processor than its own.
func TestSeriesOfAnotherArchitecture(t *testing.T) {
	tr := tree(t, "exit 1")
	folder(t, tr.Root, "6.12")
	arm, err := arch.Lookup("arm64-16k")
	if err != nil {
		t.Fatal(err)
	}
	tr = tr.For(arm)
	if k, err := Open(tr, "7.2"); !errors.Is(err, ErrNotFetched) || k.Arch != arm || DefaultOn(arm) != "7.2" {
		t.Errorf("7.2: %+v, %v", k, err)
	}
	if _, err := Open(tr, "6.12"); err == nil || errors.Is(err, ErrNotFetched) || !strings.Contains(err.Error(), "of arm64-16k: there are 7.2;") {
		t.Errorf("6.12: %v", err)
	}
}

// Stubs of what the script asks: apt offers what is in $OFFERED.
var stubs = map[string]string{
	"dpkg": "echo amd64", "id": "echo 0", "unshare": "", "mmdebstrap": "echo mmdebstrap; exit 1",
	"apt-get":    `[ "$1" != indextargets ] || echo 'Debian|Debian|http://deb.example'`,
	"apt-config": "",
	"apt-cache": `case $1 in
		search) for r in $OFFERED; do echo "linux-headers-$r - for $r"; done | grep -E "$(echo "$3" | sed 's/\$$/ /')" ;;
		show) echo "Version: 1" ;;
		esac`,
}

// The script says which later series are on offer beside the one it fetches.
func TestSaysLaterSeries(t *testing.T) {
	bin, root := t.TempDir(), t.TempDir()
	for name, script := range stubs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"../../kernel/buildroot.sh": buildroot, "../archive.sh": "testbed/archive.sh"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	folder(t, root, "7.2")
	folder(t, root, "7.3")
	for _, c := range []struct{ series, offered, fetched, want string }{
		{"7.2", "6.12.1 7.2.12 7.2.9", "7.2.12", ""},
		{"7.2", "7.2.12 7.3.4", "7.2.12", "kernel 7.2: 7.3.4 is on offer too: KERNEL=7.3\n"},
		{"7.3", "7.2.12 7.3.4 7.10.1 7.10.2", "7.3.4", "kernel 7.3: 7.10.2 is on offer, and not supported yet: a new folder in " + patches + "\n"},
		{"7.2", "7.2.12 7.3.4 8.0", "7.2.12", "kernel 7.2: 7.3.4 is on offer too: KERNEL=7.3\nkernel 7.2: 8.0 is on offer, and not supported yet: a new folder in " + patches + "\n"},
	} {
		cmd := exec.Command(filepath.Join(root, buildroot), c.series)
		offered := ""
		for _, r := range strings.Fields(c.offered) {
			offered += r + "+deb13-amd64 "
		}
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "OFFERED="+offered, "BUILD=", "REFRESH=1", "FLAVOUR=")
		out, _ := cmd.CombinedOutput() // mmdebstrap ends it
		said, _, fetched := strings.Cut(string(out), "kernel "+c.fetched+"+deb13-amd64 (1): fetching it")
		if !fetched || said != c.want {
			t.Errorf("%s of %s: said %q, want %q\n%s", c.series, c.offered, said, c.want, out)
		}
	}
}

func TestFetchNewer(t *testing.T) {
	quiet := func(string, ...any) {}
	good := tree(t, `dir=$BUILD/kernels/$1 && mkdir -p "$dir" && cd "$dir" &&
		echo "`+layoutLine()+`" >inputs && echo 7.2.9+deb13-amd64 >release && echo 7.2.9-1~bpo13+1 >version`)
	k, err := Fetch(context.Background(), good, "7.2", &apt.Apt{}, quiet)
	if err != nil || k.Release != "7.2.9+deb13-amd64" || k.Version != "7.2.9-1~bpo13+1" {
		t.Errorf("got %+v, %v", k, err)
	}
	if again, err := Open(good, "7.2"); err != nil || again != k {
		t.Errorf("opened again: %+v, %v", again, err)
	}

	// The error of a machine that cannot have the series differs from that of a failure.
	_, err = Fetch(context.Background(), tree(t, "echo progress >&2; echo 'no such kernel here' >&2; exit 77"), "7.2", &apt.Apt{}, quiet)
	if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), ": no such kernel here") {
		t.Errorf("status 77: got %v", err)
	}
	_, err = Fetch(context.Background(), tree(t, "exit 1"), "7.2", &apt.Apt{}, quiet)
	if err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("status 1: got %v", err)
	}

	// When ctx ends, the script gets SIGTERM and cleans up. Fetch does not wait for the
	// script's sleep.
	slow := tree(t, `trap 'kill $!; touch "$BUILD"; exit 1' TERM; sleep 100 & touch "$BUILD.started"; wait`)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for {
			if _, err := os.Stat(slow.Build + ".started"); err == nil {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := Fetch(ctx, slow, "7.2", &apt.Apt{}, quiet); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: got %v", err)
	}
	if _, err := os.Stat(slow.Build); err != nil {
		t.Errorf("the script was not told: %v", err)
	}
}
