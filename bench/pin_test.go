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

// A side has one processor and late timers, and who starts it all that it had.
func TestStartOn(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	slack, first, last := slackOf(t), -1, -1
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
		cmd := exec.Command("sed", "-n", "s/^Cpus_allowed_list:[[:space:]]*//p; t; /^[0-9]*$/p", "/proc/self/status", "/proc/self/timerslack_ns")
		cmd.Stdout = &out
		if err := startOn(c.last, cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || out.String() != fmt.Sprintf("%d\n%d\n", c.want, lateTimers) {
			t.Errorf("last %v: processors and slack %q, %v; want %d", c.last, out.String(), err, c.want)
		}
		if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
			t.Errorf("afterwards %v, %v; were %v", after, err, before)
		}
		if now := slackOf(t); now != slack {
			t.Errorf("timers may be %d ns late afterwards, %d before", now, slack)
		}
	}
}

// slackOf is the calling thread's timer slack.
func slackOf(t *testing.T) int {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}
