// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A side has one processor, and who starts it all that it had.
func TestStartOn(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	first, last := -1, -1
	for cpu := range len(before) * 64 {
		if before.IsSet(cpu) {
			if last = cpu; first < 0 {
				first = cpu
			}
		}
	}
	for _, c := range []struct {
		last bool
		want int
	}{{false, first}, {true, last}} {
		var out bytes.Buffer
		cmd := exec.Command("sed", "-n", "s/^Cpus_allowed_list:[[:space:]]*//p", "/proc/self/status")
		cmd.Stdout = &out
		if err := startOn(c.last, cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || out.String() != fmt.Sprintln(c.want) {
			t.Errorf("last %v: processors %q, %v; want %d", c.last, out.String(), err, c.want)
		}
		if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
			t.Errorf("afterwards %v, %v; were %v", after, err, before)
		}
	}
}
