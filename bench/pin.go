// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pin ties the calling goroutine to its thread and the thread to one
// processor: the last that the process may use, as interrupts go to the first.
// Programs started from here on inherit it, so that every side of a comparison
// runs on the same processor and none of them next to itself. The Go runtime's
// other threads keep their choice.
func pin() error {
	runtime.LockOSThread()
	_, err := confine(true)
	return err
}

// lateTimers is how much later than asked for the sleeps of a side may end. Go's monitor
// sleeps for 20 us at a time, on the processor where the side polls.
const lateTimers = 4 * time.Millisecond

// startOn starts a program on one processor, the first that there is or the last, with
// lateTimers.
func startOn(last bool, cmd *exec.Cmd) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("prctl(PR_GET_TIMERSLACK): %w", err)
	}
	before, err := confine(last)
	if err != nil {
		return err
	}
	defer func() {
		back := errors.Join(setSlack(slack), unix.SchedSetaffinity(0, &before))
		if back != nil && err == nil { // nobody will wait for what has started
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		err = errors.Join(err, back)
	}()
	if err := setSlack(int(lateTimers.Nanoseconds())); err != nil {
		return err
	}
	return cmd.Start()
}

// setSlack sets the calling thread's timer slack, which programs that it starts inherit.
func setSlack(ns int) error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ns), 0, 0, 0); err != nil {
		return fmt.Errorf("prctl(PR_SET_TIMERSLACK, %d): %w", ns, err)
	}
	return nil
}

// confine ties the calling thread to the first or the last processor that it may
// use, and returns all of these.
func confine(last bool) (allowed unix.CPUSet, err error) {
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return allowed, fmt.Errorf("sched_getaffinity: %w", err)
	}
	at := -1
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) && (last || at < 0) {
			at = cpu
		}
	}
	var one unix.CPUSet
	one.Set(at)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return allowed, fmt.Errorf("sched_setaffinity to processor %d: %w", at, err)
	}
	return allowed, nil
}
