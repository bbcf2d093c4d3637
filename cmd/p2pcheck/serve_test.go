// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
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
