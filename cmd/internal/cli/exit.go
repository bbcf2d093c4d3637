// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit statuses of the commands.
const (
	ExitOK          = 0
	ExitFailed      = 1   // the operation was tried and failed
	ExitUsage       = 2   // the command line makes no sense; nothing was tried
	ExitUnavailable = 3   // nothing here to try it with: no such device, library or build
	ExitInterrupted = 130 // Ctrl-C or SIGTERM; everything was closed
)

// UsageError is a mistake on the command line.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e *UsageError) Unwrap() error { return e.Err }

// Unavailable marks an error as "nothing here to try it with".
type Unavailable struct{ Err error }

func (e *Unavailable) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *Unavailable) Unwrap() error { return e.Err }

// Exit is the end of a program that a command ran, whose status becomes the
// command's own.
type Exit struct {
	What   string // the program
	Code   int
	Signal syscall.Signal // what ended it, 0 if it did itself
	Err    error          // why it did not run, nil if it did
}

func (e *Exit) Error() string {
	if e.Err != nil {
		return e.What + " cannot be run: " + e.Err.Error()
	}
	if e.Signal != 0 {
		name := unix.SignalName(e.Signal)
		if name == "" { // of the real-time ones
			name = fmt.Sprintf("signal %d", int(e.Signal))
		}
		return fmt.Sprintf("%s was ended by %s", e.What, name)
	}
	return fmt.Sprintf("%s ended with exit status %d", e.What, e.Code)
}

// Unwrap returns why the program did not run.
func (e *Exit) Unwrap() error { return e.Err }

// On says what an error was about, where one command does several things.
type On struct {
	Subject string
	Err     error
}

func (e *On) Error() string { return e.Subject + ": " + e.Err.Error() }

// Unwrap returns the error.
func (e *On) Unwrap() error { return e.Err }

// ErrInterrupted is the cause of a context that Context returned, once a
// signal has arrived.
var ErrInterrupted = errors.New("interrupted")

// interrupted is ErrInterrupted with the signal that did it.
type interrupted struct{ by os.Signal }

func (interrupted) Error() string { return ErrInterrupted.Error() }
func (interrupted) Unwrap() error { return ErrInterrupted }

// Signal is the signal that ended a context of Context, nil if none did.
func Signal(ctx context.Context) os.Signal {
	var i interrupted
	if errors.As(context.Cause(ctx), &i) {
		return i.by
	}
	return nil
}

// Context ends when the first SIGINT or SIGTERM arrives, or SIGHUP where that is not
// ignored (nohup). A second one kills the process in the ordinary way: cleaning up
// may hang in a driver.
func Context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	if !signal.Ignored(unix.SIGHUP) {
		signal.Notify(signals, unix.SIGHUP)
	}
	go func() {
		select {
		case by := <-signals:
			signal.Stop(signals)
			cancel(interrupted{by})
		case <-ctx.Done():
			signal.Stop(signals)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Status is the exit status for err.
func Status(err error) int {
	var usage *UsageError
	var missing *Unavailable
	var program *Exit
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &program):
		return program.Code
	case errors.Is(err, ErrInterrupted):
		return ExitInterrupted
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &missing):
		return ExitUnavailable
	default:
		return ExitFailed
	}
}
