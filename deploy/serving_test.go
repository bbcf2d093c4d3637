// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// server is p2pcheck serve.
type server struct {
	cmd  *exec.Cmd
	base string // of its addresses
}

// serving starts p2pcheck serve, and waits until it says where it is.
func serving(t *testing.T, cmd *exec.Cmd) server {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	line, err := lines.ReadString('\n')
	_, address, ok := strings.Cut(strings.TrimSpace(line), "http://")
	if err != nil || !ok {
		rest, _ := io.ReadAll(lines)
		t.Fatalf("%s%s%v", line, rest, err)
	}
	return server{cmd, "http://" + strings.TrimSuffix(address, "/metrics")}
}

// get returns what the server answers.
func (s server) get(t *testing.T, path string) string {
	t.Helper()
	r, err := http.Get(s.base + path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v: %s", path, r.StatusCode, err, text)
	}
	return string(text)
}

// end ends the server as a runtime does, which is no failure of it.
func (s server) end(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("%v", err)
	}
}

// onLoopback are the manifest's arguments, but for the address, which is any that is free.
func onLoopback(c *corev1.Container) []string {
	args := slices.Clone(c.Args)
	args[slices.Index(args, "--listen=:9838")] = "--listen=127.0.0.1:0"
	return args
}

// labelled waits for the labels in a folder, and fails if they are not those of small-hgx.
func labelled(t *testing.T, folder string) {
	t.Helper()
	var labels []byte
	var err error
	for range 1000 {
		if labels, err = os.ReadFile(filepath.Join(folder, "p2pcheck")); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || !strings.Contains(string(labels), "p2pcheck.pairs-direct=4\n") {
		t.Errorf("%v: %s", err, labels)
	}
}
