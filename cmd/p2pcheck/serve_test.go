// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/agent"
	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/cmd/p2pcheck/internal/metrics"
	"github.com/gpurdma/gpurdma/internal/testenv"
	"github.com/gpurdma/gpurdma/p2p/machine"
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

// lockedText is what was written, perhaps by a look that is under way when serve ends.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
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

// serve reports a missing file or device at its start, not in the metrics alone. It ends if the error
// stays.
func TestServeSaysWhatIsMissing(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	for what, args := range map[string][]string{"/none": {"--root", filepath.Join(root, "none")}, `called "foo"`: {"--root", root, "--gpu", "foo"}} {
		var out lockedText
		a := &app{stdout: io.Discard, stderr: &out}
		status := cli.ExitUsage // serve ends by itself, before it handles signals
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

// A full disk may have room again later: serve goes on, and reports why there are no labels.
func TestServeOnAFullDisk(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	var out lockedText
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

// The metrics are those of the machine as it is, no older than is asked for.
func TestServe(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	a := &app{source: machine.Source{Root: root}}
	get := func(looks *agent.Shared) string {
		answer, err := looks.Answer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return written(t, answer)
	}
	kept := agent.Share(a.answer, time.Hour)
	first := get(kept)
	exposition(t, first)
	if !strings.Contains(first, "p2pcheck_status 0\n") || !strings.Contains(first, `p2pcheck_pair_outcome{gpu="0000:13:00.0",nic="mlx5_0",outcome="direct"} 1`) {
		t.Error(first)
	}
	// The configuration space of a port is cut off before ACS.
	if err := os.Truncate(filepath.Join(root, "sys/bus/pci/devices/0000:12:00.0/config"), 64); err != nil {
		t.Fatal(err)
	}
	if get(kept) != first {
		t.Error("the machine was looked at again")
	}
	if second := get(agent.Share(a.answer, 0)); !strings.Contains(second, "p2pcheck_status 3\n") {
		t.Error(second)
	}
}

// written are the metrics of an answer.
func written(t *testing.T, answer agent.Answer) string {
	t.Helper()
	families, err := answer.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := metrics.Write(&b, families); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A look ends early when its callers have left.
func TestServeEndsALook(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &app{source: machine.Source{Root: testenv.Machines["small-hgx"]().Write(t)}}
	if got := a.answer(ctx); !errors.Is(got.Err, context.Canceled) {
		t.Errorf("%v: %v", got.Err, got.Metrics)
	}
}

// Labels are written again and again, and are good for a while only.
func TestServeLabels(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "p2pcheck")
	a := &app{source: machine.Source{Root: root}}
	looks := agent.Share(a.answer, time.Hour)
	for range 2 {
		before := time.Now()
		if err := writeLabels(t.Context(), looks, time.Hour, file); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, labels, _ := strings.Cut(string(text), "\n")
		stamp, ok := strings.CutPrefix(head, "# +expiry-time=")
		until, err := time.Parse(time.RFC3339, stamp)
		if !ok || err != nil || until.Before(before.Add(2*time.Hour)) {
			t.Errorf("%q: %v", head, err)
		}
		if labels != run(testenv.Machines["small-hgx"](), t, "--root", "ROOT", "--format", "nfd").out {
			t.Error(labels)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	if err := writeLabels(t.Context(), looks, time.Hour, filepath.Join(file, "none")); err == nil {
		t.Error("written into a file")
	}
	if r := command("serve", "--nfd", file, "--every", "0", "--listen", "127.0.0.1:0"); r.status != cli.ExitUsage {
		t.Errorf("%+v", r)
	}
}

// serve answers over the network, answers /healthz without reading the machine, and ends when its
// context does.
func TestListen(t *testing.T) {
	root := testenv.Machines["small-hgx"]().Write(t)
	file := filepath.Join(t.TempDir(), "labels")
	said, says := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a := &app{stdout: says, stderr: says, source: machine.Source{Root: root}}
		ended <- a.listen(ctx, "127.0.0.1:0", time.Minute, file)
	}()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(line), "http://")
	get := func(path string) string {
		r, err := http.Get("http://" + strings.TrimSuffix(address, "/metrics") + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r.StatusCode, " ", string(text))
	}
	if got := get("/healthz"); got != "200 ok\n" {
		t.Error(got)
	}
	if got := get("/"); !strings.HasPrefix(got, "404") {
		t.Error(got)
	}
	if got := get("/metrics"); !strings.Contains(got, "p2pcheck_status 0\n") {
		t.Error(got)
	}
	for range 1000 {
		if _, err = os.Stat(file); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
