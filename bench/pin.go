// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// pin ties the calling goroutine to its thread and the thread to one
// processor: the last that the process may use, as interrupts go to the first.
// Programs started from here on inherit it, so that every side of a comparison
// runs on the same processor and none of them next to itself. The Go runtime's
// other threads keep their choice.
func pin() error {
	runtime.LockOSThread()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	last := -1
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) {
			last = cpu
		}
	}
	one.Set(last)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("sched_setaffinity to processor %d: %w", last, err)
	}
	return nil
}
