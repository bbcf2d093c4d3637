// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime begins to count the processor time that this process takes. The function that
// it returns reports an n-th of it, in nanoseconds. Beside the clock's time of a benchmark
// it says what the code costs on a machine on which other processes are busy too.
func CPUTime(b *testing.B) (report func(n int, unit string)) {
	b.Helper()
	start := ProcessTime(b)
	return func(n int, unit string) {
		b.ReportMetric(float64((ProcessTime(b)-start).Nanoseconds())/float64(n), unit)
	}
}

// ProcessTime is the processor time that this process has taken so far.
func ProcessTime(tb testing.TB) time.Duration {
	tb.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// PeakMemory is the most memory that a process has had, in bytes.
func PeakMemory(pid int) (int64, error) {
	name := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no VmHWM", name)
}
