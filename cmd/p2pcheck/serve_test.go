// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// signalling sends this process a signal when something is first written.
type signalling struct {
	t    *testing.T
	by   unix.Signal
	once sync.Once
}

func (s *signalling) Write(p []byte) (int, error) {
	s.once.Do(func() {
		if err := unix.Kill(os.Getpid(), s.by); err != nil {
			s.t.Error(err)
		}
	})
	return len(p), nil
}

// SIGTERM is how a service is stopped: no failure.
func TestServeStops(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	for by, status := range map[unix.Signal]int{unix.SIGTERM: cli.ExitOK, unix.SIGINT: cli.ExitInterrupted} {
		a := &app{stdout: io.Discard, stderr: &signalling{t: t, by: by}}
		if got := a.run([]string{"serve", "--root", root, "--listen", "127.0.0.1:0"}); got != status {
			t.Errorf("%v: status %d, want %d", by, got, status)
		}
	}
}

// What serve does not find is said at its start, not in metrics alone, and ends it if
// it cannot come later.
func TestServeSaysWhatIsMissing(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	for what, args := range map[string][]string{"/none": {"--root", filepath.Join(root, "none")}, `called "foo"`: {"--root", root, "--gpu", "foo"}} {
		var out strings.Builder
		a := &app{stdout: io.Discard, stderr: &out}
		status := cli.ExitUsage // it ends by itself: a signal would come when nobody waits for one
		if what != "/none" {
			a.stderr, status = io.MultiWriter(&out, &signalling{t: t, by: unix.SIGTERM}), cli.ExitOK
		}
		if got := a.run(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)); got != status || !strings.Contains(out.String(), what) {
			t.Errorf("%q: status %d: %s", args, got, &out)
		}
	}
	if r := command("serve", "--every", "-1s", "--listen", "127.0.0.1:0"); r.status != cli.ExitUsage || !strings.Contains(r.err, "--every") {
		t.Errorf("%+v", r)
	}
}

// A disk that is full has room again some day: serve goes on, and says why there are no
// labels.
func TestServeOnAFullDisk(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	var out strings.Builder
	a := &app{stdout: io.Discard, stderr: io.MultiWriter(&out, &signalling{t: t, by: unix.SIGTERM})}
	if got := a.run([]string{"serve", "--listen", "127.0.0.1:0", "--root", root, "--nfd", "/dev/full"}); got != cli.ExitOK || !strings.Contains(out.String(), "no space left") || !strings.Contains(out.String(), "metrics at") {
		t.Errorf("status %d: %s", got, &out)
	}
}

// A flag that a command does not look at is a mistake.
func TestFlagsThatAreNotUsed(t *testing.T) {
	for _, args := range [][]string{
		{"diff", "a", "b", "--gpu", "x"}, {"report", "a", "--root", "/"}, {"snapshot", "f", "--skip", "NET"}, {"snapshot", "f", "--snapshot", "g"},
		{"explain", "--snapshot", "f"}, {"serve", "-o", "f"}, {"--gpu", "x", "diff", "a", "b"},
	} {
		if r := command(args...); r.status != cli.ExitUsage || !strings.Contains(r.err, " has no --") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// Devices are known by what lspci calls them, too.
func TestPCIAddresses(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	want := command("--root", root, "--gpu", "0000:13:00.0", "--nic", "mlx5_0")
	for _, args := range [][]string{{"--gpu", "13:00.0", "--nic", "14:00.0"}, {"--gpu", "0000:13:00.0", "--nic", "0000:14:00.0"}} {
		if r := command(append(args, "--root", root)...); r != want || r.status != cli.ExitOK {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := command("--root", root, "--nic", "13:00.0"); r.status != cli.ExitUnavailable || !strings.Contains(r.err, "there is mlx5_0 of mlx5_core, mlx5_1") {
		t.Errorf("%+v", r)
	}
}

// The shell completes the checks that explain knows.
func TestCompleteExplain(t *testing.T) {
	if r := command("__complete", "explain", "PCIE-"); r.status != cli.ExitOK || !strings.Contains(r.out, "PCIE-LINK") || !strings.Contains(r.out, "NET\n") {
		t.Errorf("%+v", r)
	}
}
