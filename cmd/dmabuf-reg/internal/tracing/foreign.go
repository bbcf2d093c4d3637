// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
)

// Exit statuses of a program that did not run, as shells have them.
const (
	statusNotExecutable = 126
	statusNotFound      = 127
	statusSignalled     = 128 // and the signal's number
)

// foreign is a program, not of this project, that a command runs.
type foreign struct {
	*exec.Cmd
}

func newForeign(argv []string, stdout, stderr io.Writer) (*foreign, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, cannotRun(argv[0], err)
	}
	c := &foreign{exec.Command(path, argv[1:]...)}
	c.Args[0] = argv[0]
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, stdout, stderr
	return c, nil
}

func cannotRun(name string, err error) error {
	code := statusNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = statusNotFound
	}
	if name == "" {
		name = "an empty name"
	}
	return &cli.Exit{What: name, Code: code, Err: err}
}

func (c *foreign) notStarted(err error) error { return cannotRun(c.Args[0], err) }

// wait waits for the end of a program that was started. An interrupt is its to
// answer: a terminal has sent it Ctrl-C too, everything else is passed on.
func (c *foreign) wait(ctx context.Context) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = c.Wait() // the status is read from the process's state
	}()
	select {
	case <-over:
		return
	case <-ctx.Done():
	}
	if cli.Signal(ctx) != unix.SIGINT || !inForeground() {
		_ = c.Process.Signal(unix.SIGTERM) // it may have ended meanwhile
	}
	<-over
}

// inForeground reports whether a terminal sends its signals to this process.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

func (c *foreign) ended() bool { return c.ProcessState != nil }

// exit is the program's status, as a shell gives it, and the signal that ended it, 0
// for none.
func (c *foreign) exit() (status int, by syscall.Signal) {
	ws, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return statusSignalled + int(ws.Signal()), ws.Signal()
	}
	return c.ProcessState.ExitCode(), 0
}
