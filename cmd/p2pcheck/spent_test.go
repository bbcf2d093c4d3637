// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// spentFile is where such a command writes what it has spent.
const spentFile = "P2PCHECK_TEST_SPENT_FILE"

// spent is what a command has spent. Its processor time is not here: that depends on what else the
// machine does, and on how fast it is.
type spent struct {
	// Peak is the most memory that it has had, in bytes.
	Peak int64
	// Allocated is how many bytes it has allocated in all.
	Allocated uint64
	// Reads and Read are how often it has asked the kernel for bytes of a file, and how many it was given.
	Reads, Read uint64
}

func (s spent) String() string {
	return fmt.Sprintf("%d MiB at most, %d MiB in all, %d reads of %d KiB", s.Peak>>20, s.Allocated>>20, s.Reads, s.Read>>10)
}

func (s spent) above(bounds spent) bool {
	return s.Peak > bounds.Peak || s.Allocated > bounds.Allocated || s.Reads > bounds.Reads || s.Read > bounds.Read
}

// measured runs the command, and writes to a file what it has spent.
func measured(file string) int {
	tune()
	status := (&app{stdout: os.Stdout, stderr: os.Stderr}).run(os.Args[1:])
	if err := writeSpent(file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	return status
}

func writeSpent(file string) error {
	var s spent
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	s.Allocated = mem.TotalAlloc
	io, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscanf(string(io), "rchar: %d\nwchar: %d\nsyscr: %d", &s.Read, new(uint64), &s.Reads); err != nil {
		return fmt.Errorf("/proc/self/io: %w", err)
	}
	if s.Peak, err = testenv.PeakMemory(os.Getpid()); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// runMeasured runs the command in a process of its own.
func runMeasured(tb testing.TB, args ...string) (out []byte, state *os.ProcessState, s spent) {
	tb.Helper()
	// A run that goes on and on is ended: one that is busy and neither allocates nor reads is found so.
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	file := filepath.Join(tb.TempDir(), "spent")
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	// A collector that runs beside the program ends when it gets the processor, and the heap grows until then: on a
	// busy machine that is up to twice as much. One that stops the program makes the peak a count.
	cmd.Env = append(os.Environ(), asCommand+"=1", spentFile+"="+file, "GODEBUG=gcstoptheworld=1")
	out, err := cmd.CombinedOutput()
	if s := cmd.ProcessState; s == nil || s.ExitCode() < cli.ExitOK || s.ExitCode() > cli.ExitUnavailable {
		tb.Fatalf("%q: %v\n%s", args, err, out[:min(len(out), 2000)])
	}
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		tb.Fatal(err)
	}
	return out, cmd.ProcessState, s
}
