// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpurdma/gpurdma/testbed/wire"
)

// TestInput sends two commands' input over one port. Input that the first command does
// not read must not reach the second.
func TestInput(t *testing.T) {
	port, host, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	in := newInput(port)

	read := func(position int64, text string) string {
		t.Helper()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		in.attach(w, position)
		if _, err := host.WriteString(text); err != nil {
			t.Fatal(err)
		}
		in.eof(position + int64(len(text)))
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read(0, "first"); got != "first" {
		t.Errorf("got %q", got)
	}
	// Sent to a command that ended without reading.
	if _, err := host.WriteString("unread"); err != nil {
		t.Fatal(err)
	}
	in.detach()
	if got := read(int64(len("first")+len("unread")), "second"); got != "second" {
		t.Errorf("got %q", got)
	}
	if got := read(int64(len("first")+len("unread")+len("second")), ""); got != "" {
		t.Errorf("empty input: got %q", got)
	}
}

// A command that cannot be started ends as in a shell.
func TestCommandNotStarted(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"/nonexistent": 127, "nonesuch": 127, text + "/in": 126} {
		exit := (&guest{}).command(wire.Run{Args: []string{name}, Env: []string{"PATH=/nonexistent"}})
		if exit.Status != want || exit.Error == "" {
			t.Errorf("%s: %+v, want status %d and a reason", name, exit, want)
		}
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"tool": 0o755, "text": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=/nonexistent:" + dir}
	for name, want := range map[string]string{
		"tool": filepath.Join(dir, "tool"), "./tool": filepath.Join(dir, "tool"), filepath.Join(dir, "tool"): filepath.Join(dir, "tool"),
	} {
		if got, err := lookPath(wire.Run{Args: []string{name}, Dir: dir, Env: env}); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"text", "nonesuch"} {
		if _, err := lookPath(wire.Run{Args: []string{name}, Dir: dir, Env: env}); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("%s: got %v, want not found", name, err)
		}
	}
}

func TestHidden(t *testing.T) {
	for path, want := range map[string]bool{
		"/tmp/clone": true, "/tmp": false, "/tmpfs/x": false, "/run/user/0": true, "/dev/shm/x": true, "/home/me": false,
	} {
		if hidden(path) != want {
			t.Errorf("hidden(%s) = %v", path, !want)
		}
	}
}
