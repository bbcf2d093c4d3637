// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asStubborn makes the test binary a program that does not end when it is
// interrupted, as one that hangs in a driver does not.
const asStubborn = "CLI_TEST_STUBBORN"

func TestMain(m *testing.M) {
	if os.Getenv(asStubborn) != "" {
		stubborn()
	}
	os.Exit(m.Run())
}

func stubborn() {
	ctx, cancel := Context()
	defer cancel()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println(context.Cause(ctx))
	fmt.Println(Signal(ctx))
	time.Sleep(time.Hour)
}

// The first signal ends the context, the second the process.
func TestSignals(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT) // a child does not ignore it then, even if this process did
	defer signal.Reset(unix.SIGINT)
	for _, first := range []unix.Signal{unix.SIGINT, unix.SIGTERM} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), asStubborn+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		expect := func(want string) {
			t.Helper()
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("%q, %v; want %q", lines.Text(), lines.Err(), want)
			}
		}
		expect("ready")
		if err := cmd.Process.Signal(first); err != nil {
			t.Fatal(err)
		}
		expect(ErrInterrupted.Error())
		expect(first.String())
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGINT {
			t.Errorf("%v then SIGINT: %v, want death by SIGINT", first, err)
		}
	}
}

func TestContextEndsQuietly(t *testing.T) {
	ctx, cancel := Context()
	cancel()
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), ErrInterrupted) || Signal(ctx) != nil {
		t.Error("cancelling is taken for a signal")
	}
}

func TestExitSaysWhatEndedAProgram(t *testing.T) {
	for want, e := range map[string]Exit{
		"job ended with exit status 137":             {What: "job", Code: 137},
		"job was ended by SIGKILL":                   {What: "job", Code: 137, Signal: syscall.SIGKILL},
		"job was ended by signal 35":                 {What: "job", Code: 163, Signal: 35},
		"job cannot be run: no such thing as a file": {What: "job", Code: 127, Err: errors.New("no such thing as a file")},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
