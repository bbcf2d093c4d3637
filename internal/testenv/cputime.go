// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime begins to count the processor time that this process takes; what it
// returns reports as much of it as one of n took, in nanoseconds. Beside the
// clock's time of a benchmark it says what the code costs on a machine on which
// others are busy too.
func CPUTime(b *testing.B) (report func(n int, unit string)) {
	b.Helper()
	start := processTime(b)
	return func(n int, unit string) {
		b.ReportMetric(float64((processTime(b)-start).Nanoseconds())/float64(n), unit)
	}
}

func processTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
