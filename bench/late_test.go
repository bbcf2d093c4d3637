// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const lateHelper = "GPURDMA_BENCH_LATE"

// A program begins anew with late timers, once, and hands them on.
func TestStartLate(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(lateHelper) != "" {
		if err := startLate(); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("cat", "/proc/self/timerslack_ns").Output()
		t.Logf("mine %d, a child's %s%v", slack, out, err)
		return
	}
	setSlack := func(ns int) {
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ns), 0, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	const early = 50_000
	setSlack(early) // the test's parent process may have had late timers
	defer setSlack(slack)
	if now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || now != early {
		t.Skipf("the slack is %d, %v: of a real-time policy it cannot be set", now, err)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestStartLate$", "-test.v")
	cmd.Env = append(os.Environ(), lateHelper+"=1")
	out, err := cmd.CombinedOutput()
	if text := string(out); err != nil || strings.Count(text, "=== RUN") != 2 || !strings.Contains(text, "mine 4000000, a child's 4000000\n") {
		t.Errorf("%v\n%s", err, text)
	}
}
