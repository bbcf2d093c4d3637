// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os/exec"
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
	_, err := confine(true)
	return err
}

// startOn starts a program on one processor, the first that there is or the last.
func startOn(last bool, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	before, err := confine(last)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = cmd.Start()
	if back := unix.SchedSetaffinity(0, &before); back != nil { // else other goroutines would be confined too
		if err == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		return errors.Join(err, fmt.Errorf("sched_setaffinity back to where it was: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

// confine ties the calling thread to the first or the last processor that it may
// use, and returns all of these.
func confine(last bool) (allowed unix.CPUSet, err error) {
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return allowed, fmt.Errorf("sched_getaffinity: %w", err)
	}
	at := end(allowed, last)
	var one unix.CPUSet
	one.Set(at)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return allowed, fmt.Errorf("sched_setaffinity to processor %d: %w", at, err)
	}
	return allowed, nil
}

// end is the first or the last processor of a set.
func end(set unix.CPUSet, last bool) int {
	at := -1
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) && (last || at < 0) {
			at = cpu
		}
	}
	return at
}
