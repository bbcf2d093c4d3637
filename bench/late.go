// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// lateTimers is how much later than asked for the sleeps of what is compared may end.
// Go's monitor thread sleeps for 20 us at a time, 70 us with what a kernel adds, until it
// has found nothing to do for long enough, and shares the processor that is measured:
// little to a processor of today, but of an emulated one's time up to an eighth.
const lateTimers = 4 * time.Millisecond

// startLate gives this program, C's side and those that it starts lateTimers. The
// runtime's threads have the slack that the program began with: it begins anew, once.
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
