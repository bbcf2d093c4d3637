// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Limits of the steps. Together they stay below five minutes.
const (
	snapshotLimit = 30 * time.Second
	askLimit      = 30 * time.Second // of each library
	proveLimit    = 75 * time.Second
	pairLimit     = 20 * time.Second // of each pair
	convertLimit  = 10 * time.Second
	testsLimit    = 75 * time.Second // of all runtimes
	totalLimit    = 285 * time.Second
	grace         = 5 * time.Second // between the interrupt and the kill
)

// late is the error of a program that took longer than it may.
type late time.Duration

func (l late) Error() string { return fmt.Sprintf("it took longer than %v", time.Duration(l)) }

// program is a process to run.
type program struct {
	path string
	args []string
	dir  string
	env  []string // beside this process's
	// together lets run return what is printed to the standard error as well.
	together bool
}

// run runs a program for at most limit, and returns what it printed. It interrupts a program that
// takes longer, and kills it after a grace. A process that waits in the kernel does not end even
// then: run returns without it.
func run(ctx context.Context, limit time.Duration, p program) ([]byte, error) {
	name := filepath.Base(p.path)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late(limit))
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = &out, &errs, p.dir, append(os.Environ(), p.env...)
	complaints := &errs
	if p.together {
		cmd.Stderr, complaints = &out, &out
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = grace
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var late <-chan time.Time
	over := ctx.Done()
	for {
		select {
		case <-over:
			over, late = nil, time.After(2*grace)
		case <-late:
			return nil, fmt.Errorf("%s: %w, and process %d does not end: it waits in the kernel", name, context.Cause(ctx), cmd.Process.Pid)
		case err := <-done:
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w%s", name, err, lastLine(complaints.String()))
			}
			return out.Bytes(), err
		}
	}
}

// lastLine is the end of what a program complained of.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndex(text, "\n")+1:]
}

// status is the exit status in an error, and whether there is one.
func status(err error) (int, bool) {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return exit.ExitCode(), true
	}
	return 0, false
}
