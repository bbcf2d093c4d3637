// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// lateTimers is the timer slack of the compared programs: how much later than asked for
// their sleeps may end. Go's monitor thread sleeps for 20 us at a time, 70 us with the
// kernel's slack, until it has found nothing to do for long enough, and shares the processor
// that is measured. It takes little time of a processor of today, but up to an eighth of an
// emulated one's.
const lateTimers = 4 * time.Millisecond

// startLate gives lateTimers to this program and to all that it starts, C's side too. The
// runtime's threads have the slack that the program began with, so startLate executes the
// program again, once.
func startLate() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("prctl(PR_GET_TIMERSLACK): %w", err)
	}
	if int64(slack) >= lateTimers.Nanoseconds() {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(lateTimers.Nanoseconds()), 0, 0, 0); err != nil {
		return fmt.Errorf("prctl(PR_SET_TIMERSLACK, %d): %w", lateTimers.Nanoseconds(), err)
	}
	if now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || now == slack {
		return err // of a real-time policy, whose timers are never late, whatever is set
	}
	return fmt.Errorf("execve(%s): %w", self, unix.Exec(self, os.Args, os.Environ()))
}
