// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/testbed/apt"
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
	return layout.Tree{Root: root, Build: filepath.Join(root, "build")}
}

func TestFetchNewer(t *testing.T) {
	quiet := func(string, ...any) {}
	good := tree(t, `dir=$BUILD/kernels/$1 && mkdir -p "$dir" && cd "$dir" &&
		echo "layout 1" >inputs && echo 7.2.9+deb13-amd64 >release && echo 7.2.9-1~bpo13+1 >version`)
	k, err := Fetch(context.Background(), good, "7.2", &apt.Apt{}, quiet)
	if err != nil || k.Release != "7.2.9+deb13-amd64" || k.Version != "7.2.9-1~bpo13+1" {
		t.Errorf("got %+v, %v", k, err)
	}
	if again, err := Open(good, "7.2"); err != nil || again != k {
		t.Errorf("opened again: %+v, %v", again, err)
	}

	// A machine that cannot have it is told apart from a failure.
	_, err = Fetch(context.Background(), tree(t, "echo progress >&2; echo 'no such kernel here' >&2; exit 77"), "7.2", &apt.Apt{}, quiet)
	if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), ": no such kernel here") {
		t.Errorf("status 77: got %v", err)
	}
	_, err = Fetch(context.Background(), tree(t, "exit 1"), "7.2", &apt.Apt{}, quiet)
	if err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("status 1: got %v", err)
	}

	// Interrupted, the script is told to clean up, and nothing waits for it.
	slow := tree(t, `trap 'kill $!; touch "$BUILD"; exit 1' TERM; touch "$BUILD.started"; sleep 100 & wait`)
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
